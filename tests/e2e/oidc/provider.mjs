// A provider of OpenID Connect for tests: `oidc-provider`, with its own pages for logging in, and with people who are who they
// say without a password.
//
// node provider.mjs LIBRARY HOST PORT SECONDS PAGE...: LIBRARY is the `node_modules` it was installed in, SECONDS how long an ID
// token is good, PAGE the address of a control plane that people may come back to. With TLS where CERTIFICATE and KEY name files.
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer as createPlainServer } from 'node:http';
import { createServer } from 'node:https';
import { pathToFileURL } from 'node:url';

const [library, host, port, seconds, ...pages] = process.argv.slice(2);
const { default: Provider } = await import(pathToFileURL(`${library}/oidc-provider/lib/index.js`));

const GROUPS = {
  ann: ['platform', 'everybody'],
  bob: ['everybody'],
  eve: ['mesh-system:admin', 'MESH-SYSTEM:admin', 'everybody'],
};
// Another one at each start, as when keys are exchanged.
const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const key = { ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), use: 'sig', alg: 'RS256' };
const device = 'urn:ietf:params:oauth:grant-type:device_code';
const lives = Number(seconds);

const { CERTIFICATE, KEY } = process.env;
const provider = new Provider(`${CERTIFICATE ? 'https' : 'http'}://${host}:${port}`, {
  jwks: { keys: [key] },
  cookies: { keys: [randomUUID()] },
  claims: { openid: ['sub', 'groups'], email: ['email'], profile: ['name'] },
  conformIdTokenClaims: false,
  clients: [
    {
      client_id: 'strait-page',
      client_secret: 'secret-of-the-page',
      grant_types: ['authorization_code'],
      redirect_uris: pages.map((page) => `${page}/gui/login/done`),
      post_logout_redirect_uris: pages.map((page) => `${page}/gui`),
    },
    ...['strait-cli', 'somebody-else'].map((id) => ({
      client_id: id,
      token_endpoint_auth_method: 'none',
      application_type: 'native',
      grant_types: [device, 'refresh_token'],
      response_types: [],
      redirect_uris: [],
    })),
  ],
  features: { deviceFlow: { enabled: true }, revocation: { enabled: true } },
  issueRefreshToken: async (ctx, client) => client.grantTypeAllowed('refresh_token'),
  pkce: { methods: ['S256'], required: () => true },
  ttl: { AccessToken: lives, AuthorizationCode: 60, DeviceCode: 300, Grant: 3600, IdToken: lives, Interaction: 300, RefreshToken: 3600, Session: 3600 },
  findAccount: async (ctx, id) => ({
    accountId: id,
    claims: async () => ({ sub: id, groups: GROUPS[id] ?? [], name: id, email: `${id}@example.test` }),
  }),
});
// Its pages ask for a font from far away.
provider.use(async (ctx, next) => {
  if (ctx.path === '/favicon.ico') { ctx.status = 204; return; }
  await next();
  if (typeof ctx.body === 'string') ctx.body = ctx.body.replace(/@import url\([^)]*\);/g, '');
});
const server = CERTIFICATE
  ? createServer({ cert: readFileSync(CERTIFICATE), key: readFileSync(KEY) }, provider.callback())
  : createPlainServer(provider.callback());
server.listen(Number(port), host, () => console.log('the provider listens'));
