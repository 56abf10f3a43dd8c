"""Broker configuration of authentication, TLS, authorization: none of it is there yet, and `unkept.py` refuses it.

definitions.py explains the columns. Most can be set per listener, as `listener.name.<listener>.<name>`.
"""

TABLE = """
authorizer.class.name                        string   "" - low read-only refused:rights
    Class that decides who may do what; empty means that everybody may do everything, the only choice so far.
security.inter.broker.protocol               string   \
PLAINTEXT in:PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL medium read-only refused:transport
    Security protocol between brokers, where inter.broker.listener.name is not set.
security.providers                           string   null - low read-only refused:transport
    Plug-ins that add security providers.
principal.builder.class                      class    \
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder - medium per-broker refused:rights
    Plug-in class that derives the principal of a connection.
connections.max.reauth.ms                    long     0 - medium read-only refused:transport
    A SASL connection older than this must authenticate again; 0 for never.
delegation.token.secret.key                  password null - medium read-only refused:transport
    Secret with which delegation tokens are signed; the same on every broker.
delegation.token.max.lifetime.ms             long     604800000 >=1 medium read-only refused:transport
    Age at which a delegation token ends, renewed or not.
delegation.token.expiry.time.ms              long     86400000 >=1 medium read-only refused:transport
    How long a delegation token holds before it must be renewed.
delegation.token.expiry.check.interval.ms    long     3600000 >=1 low read-only refused:transport
    How often ended delegation tokens are removed.
sasl.enabled.mechanisms                      list     GSSAPI set medium per-broker refused:transport
    SASL mechanisms that clients may use.
sasl.mechanism.inter.broker.protocol         string   GSSAPI - medium per-broker refused:transport
    SASL mechanism between brokers.
sasl.mechanism.controller.protocol           string   GSSAPI - high read-only refused:transport
    SASL mechanism towards a separate controller.
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
    First wait between login attempts.
sasl.login.retry.backoff.max.ms              long     10000 - low read-only refused:transport
    Longest wait between login attempts.
sasl.login.refresh.window.factor             double   0.8 - medium per-broker refused:transport
    Share of a credential's lifetime after which it is renewed.
sasl.login.refresh.window.jitter             double   0.05 - medium per-broker refused:transport
    Random share added to the renewal time.
sasl.login.refresh.min.period.seconds        short    60 - medium per-broker refused:transport
    A credential is not renewed sooner than this.
sasl.login.refresh.buffer.seconds            short    300 - medium per-broker refused:transport
    A credential is renewed at least this long before it ends.
sasl.kerberos.service.name                   string   null - medium per-broker refused:transport
    Kerberos principal name that brokers run as.
sasl.kerberos.kinit.cmd                      string   /usr/bin/kinit - medium per-broker refused:transport
    Path of kinit.
sasl.kerberos.principal.to.local.rules       list     DEFAULT set medium per-broker refused:transport
    Rules that shorten Kerberos principals to user names.
sasl.kerberos.min.time.before.relogin        long     60000 - medium per-broker refused:transport
    Least time between two Kerberos logins.
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
    Whether an OAuth assertion carries an id of its own.
sasl.oauthbearer.assertion.claim.nbf.seconds int      60 0..3600 low read-only refused:transport
    How far an OAuth assertion's start lies in the past.
sasl.oauthbearer.assertion.claim.sub         string   null - medium read-only refused:transport
    Subject claim of an OAuth assertion.
sasl.oauthbearer.assertion.file              string   null - medium read-only refused:transport
    File with a ready-made OAuth assertion.
sasl.oauthbearer.assertion.private.key.file  string   null - medium read-only refused:transport
    File with the private key for OAuth assertions.
sasl.oauthbearer.assertion.private.key.passphrase password null - medium read-only refused:transport
    Passphrase of that private key.
sasl.oauthbearer.assertion.template.file     string   null - medium read-only refused:transport
    File with further headers and claims for OAuth assertions.
sasl.oauthbearer.client.credentials.client.id string   null - medium read-only refused:transport
    Client id for the OAuth client credentials grant.
sasl.oauthbearer.client.credentials.client.secret password null - medium read-only refused:transport
    Client secret for the OAuth client credentials grant.
sasl.oauthbearer.clock.skew.seconds          int      30 - low read-only refused:transport
    Tolerated difference between our clock and the identity provider's.
sasl.oauthbearer.expected.audience           list     "" set low read-only refused:transport
    Audiences of which a token must name one.
sasl.oauthbearer.expected.issuer             string   null - low read-only refused:transport
    Issuer that a token must name.
sasl.oauthbearer.jwks.endpoint.url           string   null - medium read-only refused:transport
    Where the identity provider's signing keys are.
sasl.oauthbearer.jwks.endpoint.refresh.ms    long     3600000 - low read-only refused:transport
    How often the signing keys are fetched again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long     100 - low read-only refused:transport
    First wait between attempts to fetch the signing keys.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long     10000 - low read-only refused:transport
    Longest wait between attempts to fetch the signing keys.
sasl.oauthbearer.jwt.retriever.class         class    \
org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever - medium read-only refused:transport
    Plug-in class that fetches tokens.
sasl.oauthbearer.jwt.validator.class         class    \
org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator - medium read-only refused:transport
    Plug-in class that checks tokens.
sasl.oauthbearer.scope                       string   null - medium read-only refused:transport
    Scope asked for with a token.
sasl.oauthbearer.scope.claim.name            string   scope - low read-only refused:transport
    Claim of a token that holds its scope.
sasl.oauthbearer.sub.claim.name              string   sub - low read-only refused:transport
    Claim of a token that holds its subject.
sasl.oauthbearer.token.endpoint.url          string   null - medium read-only refused:transport
    Where tokens are issued.
ssl.client.auth                              string   \
none in:required,requested,none medium per-broker refused:transport
    Whether a TLS client must show a certificate, may, or need not.
ssl.enabled.protocols                        list     TLSv1.2,TLSv1.3 set medium per-broker refused:transport
    TLS versions that are accepted.
ssl.protocol                                 string   TLSv1.3 - medium per-broker refused:transport
    TLS version preferred for new connections.
ssl.provider                                 string   null - medium per-broker refused:transport
    Name of the security provider for TLS.
ssl.cipher.suites                            list     "" set medium per-broker refused:transport
    Cipher suites that are accepted; empty for the library's choice.
ssl.keystore.type                            string   PEM - medium per-broker refused:transport
    Format of the key store; PEM is what can be read here.
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
    Format of the trust store; PEM is what can be read here.
ssl.truststore.location                      string   null - medium per-broker refused:transport
    File with the certificates that are trusted.
ssl.truststore.password                      password null - medium per-broker refused:transport
    Password of the trust store file.
ssl.truststore.certificates                  password null - medium per-broker refused:transport
    Certificates that are trusted, as PEM text.
ssl.keymanager.algorithm                     string   SunX509 - medium per-broker refused:transport
    Algorithm of the Java key manager.
ssl.trustmanager.algorithm                   string   PKIX - medium per-broker refused:transport
    Algorithm of the Java trust manager.
ssl.endpoint.identification.algorithm        string   https - low per-broker refused:transport
    How the name in a server's certificate is checked; empty for not at all.
ssl.secure.random.implementation             string   null - low per-broker refused:transport
    Random number generator for TLS.
ssl.engine.factory.class                     class    null - low per-broker refused:transport
    Plug-in class that makes TLS engines.
ssl.principal.mapping.rules                  string   DEFAULT - low read-only refused:transport
    Rules that turn a certificate's distinguished name into a user name.
ssl.allow.dn.changes                         boolean  false - low read-only refused:transport
    Whether a reloaded certificate may carry another distinguished name.
ssl.allow.san.changes                        boolean  false - low read-only refused:transport
    Whether a reloaded certificate may carry other alternative names.
"""
