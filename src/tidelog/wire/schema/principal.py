"""A principal as brokers pass it to each other."""

TABLE = """
DefaultPrincipalData 0 flexible 0+
    type                 string
    name                 string
    token_authenticated  bool
"""
