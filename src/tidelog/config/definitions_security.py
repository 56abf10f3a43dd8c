"""Broker configuration of authentication, TLS, authorization: none of it is there yet, and `unkept.py` refuses it.

definitions.py explains the columns. Most can be set per listener, as `listener.name.<listener>.<name>`.
"""

TABLE = """
authorizer.class.name                        string   "" - low read-only refused:rights
    Class that authorizes requests; empty allows everything to everyone, which is the only choice so far.
security.inter.broker.protocol               string   \
PLAINTEXT in:PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL medium read-only refused:transport
    Security protocol between brokers, used if inter.broker.listener.name is not set.
security.providers                           string   null - low read-only refused:transport
    Plug-ins that add security providers.
principal.builder.class                      class    \
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder - medium per-broker refused:rights
    Plug-in class that derives the principal of a connection.
connections.max.reauth.ms                    long     0 - medium read-only refused:transport
    Age at which a SASL connection must authenticate again; 0 for never.
delegation.token.secret.key                  password null - medium read-only refused:transport
    Secret that signs delegation tokens; the same on every broker.
delegation.token.max.lifetime.ms             long     604800000 >=1 medium read-only refused:transport
    Age at which a delegation token expires, even if it was renewed.
delegation.token.expiry.time.ms              long     86400000 >=1 medium read-only refused:transport
    How long a delegation token is valid before it must be renewed.
delegation.token.expiry.check.interval.ms    long     3600000 >=1 low read-only refused:transport
    How often expired delegation tokens are removed.
sasl.enabled.mechanisms                      list     GSSAPI set medium per-broker refused:transport
    SASL mechanisms that clients may use.
sasl.mechanism.inter.broker.protocol         string   GSSAPI - medium per-broker refused:transport
    SASL mechanism between brokers.
sasl.mechanism.controller.protocol           string   GSSAPI - high read-only refused:transport
    SASL mechanism for connections to a separate controller.
sasl.jaas.config                             password null - medium per-broker refused:transport
    Login settings in JAAS form; usually set per listener and mechanism.
sasl.server.max.receive.size                 int      524288 - medium read-only refused:transport
    Largest message in a SASL exchange.
sasl.server.callback.handler.class           class    null - medium read-only refused:transport
    Plug-in class that checks credentials on the server side.
sasl.client.callback.handler.class           class    null - medium read-only refused:transport
    Plug-in class that supplies credentials on the client side.
sasl.login.class                             class    null - medium read-only refused:transport
    Plug-in class that logs in.
sasl.login.callback.handler.class            class    null - medium read-only refused:transport
    Plug-in class that supplies credentials for the login.
sasl.login.connect.timeout.ms                int      null - low read-only refused:transport
    How long connecting to an identity provider may take.
sasl.login.read.timeout.ms                   int      null - low read-only refused:transport
    How long reading from an identity provider may take.
sasl.login.retry.backoff.ms                  long     100 - low read-only refused:transport
    Initial delay between login attempts.
sasl.login.retry.backoff.max.ms              long     10000 - low read-only refused:transport
    Maximum delay between login attempts.
sasl.login.refresh.window.factor             double   0.8 - medium per-broker refused:transport
    Share of a credential's lifetime after which it is renewed.
sasl.login.refresh.window.jitter             double   0.05 - medium per-broker refused:transport
    Random share added to the renewal time.
sasl.login.refresh.min.period.seconds        short    60 - medium per-broker refused:transport
    Minimum time before a credential is renewed.
sasl.login.refresh.buffer.seconds            short    300 - medium per-broker refused:transport
    How long before its expiry a credential is renewed at the latest.
sasl.kerberos.service.name                   string   null - medium per-broker refused:transport
    Kerberos principal name that brokers run as.
sasl.kerberos.kinit.cmd                      string   /usr/bin/kinit - medium per-broker refused:transport
    Path of kinit.
sasl.kerberos.principal.to.local.rules       list     DEFAULT set medium per-broker refused:transport
    Rules that shorten Kerberos principals to user names.
sasl.kerberos.min.time.before.relogin        long     60000 - medium per-broker refused:transport
    Minimum time between two Kerberos logins.
sasl.kerberos.ticket.renew.window.factor     double   0.8 - medium per-broker refused:transport
    Share of a ticket's lifetime after which it is renewed.
sasl.kerberos.ticket.renew.jitter            double   0.05 - medium per-broker refused:transport
    Random share added to the ticket's renewal time.
sasl.oauthbearer.assertion.algorithm         string   RS256 anycase:ES256,RS256 medium read-only refused:transport
    Algorithm that signs an OAuth assertion.
sasl.oauthbearer.assertion.claim.aud         string   null - medium read-only refused:transport
    Audience claim of an OAuth assertion.
sasl.oauthbearer.assertion.claim.exp.seconds int      300 0..86400 low read-only refused:transport
    Lifetime of an OAuth assertion.
sasl.oauthbearer.assertion.claim.iss         string   null - medium read-only refused:transport
    Issuer claim of an OAuth assertion.
sasl.oauthbearer.assertion.claim.jti.include boolean  false - medium read-only refused:transport
    Whether an OAuth assertion includes a unique ID.
sasl.oauthbearer.assertion.claim.nbf.seconds int      60 0..3600 low read-only refused:transport
    How far in the past the validity of an OAuth assertion begins.
sasl.oauthbearer.assertion.claim.sub         string   null - medium read-only refused:transport
    Subject claim of an OAuth assertion.
sasl.oauthbearer.assertion.file              string   null - medium read-only refused:transport
    File with a ready-made OAuth assertion.
sasl.oauthbearer.assertion.private.key.file  string   null - medium read-only refused:transport
    File with the private key for OAuth assertions.
sasl.oauthbearer.assertion.private.key.passphrase password null - medium read-only refused:transport
    Passphrase of that private key.
sasl.oauthbearer.assertion.template.file     string   null - medium read-only refused:transport
    File with additional headers and claims for OAuth assertions.
sasl.oauthbearer.client.credentials.client.id string   null - medium read-only refused:transport
    Client ID for the OAuth client credentials grant.
sasl.oauthbearer.client.credentials.client.secret password null - medium read-only refused:transport
    Client secret for the OAuth client credentials grant.
sasl.oauthbearer.clock.skew.seconds          int      30 - low read-only refused:transport
    Allowed difference between the clocks of the broker and the identity provider.
sasl.oauthbearer.expected.audience           list     "" set low read-only refused:transport
    Accepted audiences; a token must name one of them.
sasl.oauthbearer.expected.issuer             string   null - low read-only refused:transport
    Issuer that a token must name.
sasl.oauthbearer.jwks.endpoint.url           string   null - medium read-only refused:transport
    URL of the identity provider's signing keys.
sasl.oauthbearer.jwks.endpoint.refresh.ms    long     3600000 - low read-only refused:transport
    How often the signing keys are fetched again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long     100 - low read-only refused:transport
    Initial delay between attempts to fetch the signing keys.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long     10000 - low read-only refused:transport
    Maximum delay between attempts to fetch the signing keys.
sasl.oauthbearer.jwt.retriever.class         class    \
org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever - medium read-only refused:transport
    Plug-in class that fetches tokens.
sasl.oauthbearer.jwt.validator.class         class    \
org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator - medium read-only refused:transport
    Plug-in class that checks tokens.
sasl.oauthbearer.scope                       string   null - medium read-only refused:transport
    Scope to request with a token.
sasl.oauthbearer.scope.claim.name            string   scope - low read-only refused:transport
    Token claim that holds the scope.
sasl.oauthbearer.sub.claim.name              string   sub - low read-only refused:transport
    Token claim that holds the subject.
sasl.oauthbearer.token.endpoint.url          string   null - medium read-only refused:transport
    URL of the token endpoint.
ssl.client.auth                              string   \
none in:required,requested,none medium per-broker refused:transport
    Whether a TLS client certificate is required, requested, or not used.
ssl.enabled.protocols                        list     TLSv1.2,TLSv1.3 set medium per-broker refused:transport
    TLS versions that are accepted.
ssl.protocol                                 string   TLSv1.3 - medium per-broker refused:transport
    TLS version preferred for new connections.
ssl.provider                                 string   null - medium per-broker refused:transport
    Name of the security provider for TLS.
ssl.cipher.suites                            list     "" set medium per-broker refused:transport
    Cipher suites that are accepted; empty for the library's default.
ssl.keystore.type                            string   PEM - medium per-broker refused:transport
    Format of the key store; only PEM is supported.
ssl.keystore.location                        string   null - medium per-broker refused:transport
    File with the private key and its certificates.
ssl.keystore.password                        password null - medium per-broker refused:transport
    Password of the key store file.
ssl.keystore.key                             password null - medium per-broker refused:transport
    Private key, as PEM text.
ssl.keystore.certificate.chain               password null - medium per-broker refused:transport
    Certificates that belong to the private key, as PEM text.
ssl.key.password                             password null - medium per-broker refused:transport
    Password of the private key.
ssl.truststore.type                          string   PEM - medium per-broker refused:transport
    Format of the trust store; only PEM is supported.
ssl.truststore.location                      string   null - medium per-broker refused:transport
    File with the trusted certificates.
ssl.truststore.password                      password null - medium per-broker refused:transport
    Password of the trust store file.
ssl.truststore.certificates                  password null - medium per-broker refused:transport
    Trusted certificates, as PEM text.
ssl.keymanager.algorithm                     string   SunX509 - medium per-broker refused:transport
    Algorithm of the Java key manager.
ssl.trustmanager.algorithm                   string   PKIX - medium per-broker refused:transport
    Algorithm of the Java trust manager.
ssl.endpoint.identification.algorithm        string   https - low per-broker refused:transport
    How the name in a server's certificate is checked; empty disables the check.
ssl.secure.random.implementation             string   null - low per-broker refused:transport
    Random number generator for TLS.
ssl.engine.factory.class                     class    null - low per-broker refused:transport
    Plug-in class that creates TLS engines.
ssl.principal.mapping.rules                  string   DEFAULT - low read-only refused:transport
    Rules that turn a certificate's distinguished name into a user name.
ssl.allow.dn.changes                         boolean  false - low read-only refused:transport
    Whether a reloaded certificate may have a different distinguished name.
ssl.allow.san.changes                        boolean  false - low read-only refused:transport
    Whether a reloaded certificate may have different alternative names.
"""
