"""SaslHandshake (17): choose a SASL mechanism."""

TABLE = """
SaslHandshakeRequest 0-1
    mechanism  string

SaslHandshakeResponse 0-1
    error_code  int16
    mechanisms  []string
"""
