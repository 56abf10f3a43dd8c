"""Broker configuration of authentication, TLS, authorization: none of it is there yet, and `unkept.py` refuses it.

definitions.py explains the columns. Most can be set per listener, as `listener.name.<listener>.<name>`.
"""

TABLE = """
authorizer.class.name                        string   "" - low read-only
    Class that decides who may do what; empty means that everybody may do everything, the only choice so far.
security.inter.broker.protocol               string   \
PLAINTEXT in:PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL medium read-only
    Security protocol between brokers, where inter.broker.listener.name is not set.
security.providers                           string   null - low read-only
    Plug-ins that add security providers.
principal.builder.class                      class    \
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder - medium per-broker
    Plug-in class that derives the principal of a connection.
connections.max.reauth.ms                    long     0 - medium read-only
    A SASL connection older than this must authenticate again; 0 for never.
delegation.token.secret.key                  password null - medium read-only
    Secret with which delegation tokens are signed; the same on every broker.
delegation.token.max.lifetime.ms             long     604800000 >=1 medium read-only
    Age at which a delegation token ends, renewed or not.
delegation.token.expiry.time.ms              long     86400000 >=1 medium read-only
    How long a delegation token holds before it must be renewed.
delegation.token.expiry.check.interval.ms    long     3600000 >=1 low read-only
    How often ended delegation tokens are removed.
sasl.enabled.mechanisms                      list     GSSAPI set medium per-broker
    SASL mechanisms that clients may use.
sasl.mechanism.inter.broker.protocol         string   GSSAPI - medium per-broker
    SASL mechanism between brokers.
sasl.mechanism.controller.protocol           string   GSSAPI - high read-only
    SASL mechanism towards a separate controller.
sasl.jaas.config                             password null - medium per-broker
    Login settings in JAAS form; usually set per listener and mechanism.
sasl.server.max.receive.size                 int      524288 - medium read-only
    Largest message in a SASL exchange.
sasl.server.callback.handler.class           class    null - medium read-only
    Plug-in class that checks credentials on the server side.
sasl.client.callback.handler.class           class    null - medium read-only
    Plug-in class that supplies credentials on the client side.
sasl.login.class                             class    null - medium read-only
    Plug-in class that logs in.
sasl.login.callback.handler.class            class    null - medium read-only
    Plug-in class that supplies credentials for the login.
sasl.login.connect.timeout.ms                int      null - low read-only
    How long connecting to an identity provider may take.
sasl.login.read.timeout.ms                   int      null - low read-only
    How long reading from an identity provider may take.
sasl.login.retry.backoff.ms                  long     100 - low read-only
    First wait between login attempts.
sasl.login.retry.backoff.max.ms              long     10000 - low read-only
    Longest wait between login attempts.
sasl.login.refresh.window.factor             double   0.8 - medium per-broker
    Share of a credential's lifetime after which it is renewed.
sasl.login.refresh.window.jitter             double   0.05 - medium per-broker
    Random share added to the renewal time.
sasl.login.refresh.min.period.seconds        short    60 - medium per-broker
    A credential is not renewed sooner than this.
sasl.login.refresh.buffer.seconds            short    300 - medium per-broker
    A credential is renewed at least this long before it ends.
sasl.kerberos.service.name                   string   null - medium per-broker
    Kerberos principal name that brokers run as.
sasl.kerberos.kinit.cmd                      string   /usr/bin/kinit - medium per-broker
    Path of kinit.
sasl.kerberos.principal.to.local.rules       list     DEFAULT set medium per-broker
    Rules that shorten Kerberos principals to user names.
sasl.kerberos.min.time.before.relogin        long     60000 - medium per-broker
    Least time between two Kerberos logins.
sasl.kerberos.ticket.renew.window.factor     double   0.8 - medium per-broker
    Share of a ticket's lifetime after which it is renewed.
sasl.kerberos.ticket.renew.jitter            double   0.05 - medium per-broker
    Random share added to the ticket's renewal time.
sasl.oauthbearer.assertion.algorithm         string   RS256 anycase:ES256,RS256 medium read-only
    Algorithm that signs an OAuth assertion.
sasl.oauthbearer.assertion.claim.aud         string   null - medium read-only
    Audience claim of an OAuth assertion.
sasl.oauthbearer.assertion.claim.exp.seconds int      300 0..86400 low read-only
    Lifetime of an OAuth assertion.
sasl.oauthbearer.assertion.claim.iss         string   null - medium read-only
    Issuer claim of an OAuth assertion.
sasl.oauthbearer.assertion.claim.jti.include boolean  false - medium read-only
    Whether an OAuth assertion carries an id of its own.
sasl.oauthbearer.assertion.claim.nbf.seconds int      60 0..3600 low read-only
    How far an OAuth assertion's start lies in the past.
sasl.oauthbearer.assertion.claim.sub         string   null - medium read-only
    Subject claim of an OAuth assertion.
sasl.oauthbearer.assertion.file              string   null - medium read-only
    File with a ready-made OAuth assertion.
sasl.oauthbearer.assertion.private.key.file  string   null - medium read-only
    File with the private key for OAuth assertions.
sasl.oauthbearer.assertion.private.key.passphrase password null - medium read-only
    Passphrase of that private key.
sasl.oauthbearer.assertion.template.file     string   null - medium read-only
    File with further headers and claims for OAuth assertions.
sasl.oauthbearer.client.credentials.client.id string   null - medium read-only
    Client id for the OAuth client credentials grant.
sasl.oauthbearer.client.credentials.client.secret password null - medium read-only
    Client secret for the OAuth client credentials grant.
sasl.oauthbearer.clock.skew.seconds          int      30 - low read-only
    Tolerated difference between our clock and the identity provider's.
sasl.oauthbearer.expected.audience           list     "" set low read-only
    Audiences of which a token must name one.
sasl.oauthbearer.expected.issuer             string   null - low read-only
    Issuer that a token must name.
sasl.oauthbearer.jwks.endpoint.url           string   null - medium read-only
    Where the identity provider's signing keys are.
sasl.oauthbearer.jwks.endpoint.refresh.ms    long     3600000 - low read-only
    How often the signing keys are fetched again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long     100 - low read-only
    First wait between attempts to fetch the signing keys.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long     10000 - low read-only
    Longest wait between attempts to fetch the signing keys.
sasl.oauthbearer.jwt.retriever.class         class    \
org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever - medium read-only
    Plug-in class that fetches tokens.
sasl.oauthbearer.jwt.validator.class         class    \
org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator - medium read-only
    Plug-in class that checks tokens.
sasl.oauthbearer.scope                       string   null - medium read-only
    Scope asked for with a token.
sasl.oauthbearer.scope.claim.name            string   scope - low read-only
    Claim of a token that holds its scope.
sasl.oauthbearer.sub.claim.name              string   sub - low read-only
    Claim of a token that holds its subject.
sasl.oauthbearer.token.endpoint.url          string   null - medium read-only
    Where tokens are issued.
ssl.client.auth                              string   none in:required,requested,none medium per-broker
    Whether a TLS client must show a certificate, may, or need not.
ssl.enabled.protocols                        list     TLSv1.2,TLSv1.3 set medium per-broker
    TLS versions that are accepted.
ssl.protocol                                 string   TLSv1.3 - medium per-broker
    TLS version preferred for new connections.
ssl.provider                                 string   null - medium per-broker
    Name of the security provider for TLS.
ssl.cipher.suites                            list     "" set medium per-broker
    Cipher suites that are accepted; empty for the library's choice.
ssl.keystore.type                            string   PEM - medium per-broker
    Format of the key store; PEM is what can be read here.
ssl.keystore.location                        string   null - medium per-broker
    File with the private key and its certificates.
ssl.keystore.password                        password null - medium per-broker
    Password of the key store file.
ssl.keystore.key                             password null - medium per-broker
    Private key, as PEM text.
ssl.keystore.certificate.chain               password null - medium per-broker
    Certificates that belong to the private key, as PEM text.
ssl.key.password                             password null - medium per-broker
    Password of the private key.
ssl.truststore.type                          string   PEM - medium per-broker
    Format of the trust store; PEM is what can be read here.
ssl.truststore.location                      string   null - medium per-broker
    File with the certificates that are trusted.
ssl.truststore.password                      password null - medium per-broker
    Password of the trust store file.
ssl.truststore.certificates                  password null - medium per-broker
    Certificates that are trusted, as PEM text.
ssl.keymanager.algorithm                     string   SunX509 - medium per-broker
    Algorithm of the Java key manager.
ssl.trustmanager.algorithm                   string   PKIX - medium per-broker
    Algorithm of the Java trust manager.
ssl.endpoint.identification.algorithm        string   https - low per-broker
    How the name in a server's certificate is checked; empty for not at all.
ssl.secure.random.implementation             string   null - low per-broker
    Random number generator for TLS.
ssl.engine.factory.class                     class    null - low per-broker
    Plug-in class that makes TLS engines.
ssl.principal.mapping.rules                  string   DEFAULT - low read-only
    Rules that turn a certificate's distinguished name into a user name.
ssl.allow.dn.changes                         boolean  false - low read-only
    Whether a reloaded certificate may carry another distinguished name.
ssl.allow.san.changes                        boolean  false - low read-only
    Whether a reloaded certificate may carry other alternative names.
"""
