/** `radserve token issue | list | revoke`. */
import path from "node:path";
import { issueToken, parseDuration, signingKey } from "../auth.js";
import { ConfigError, type Config } from "../config.js";
import { RadserveError } from "../errors.js";
import { listTokens, readKeys, recordToken, revokeToken } from "../keys.js";
import { print, remark, type ExitStatus } from "./run.js";

export interface IssueCommand {
  subject: string;
  expires: string;
  inputRoot?: string[];
  outputRoot?: string[];
  admin?: boolean;
}

/** The token alone goes to standard output, so that it can be caught in a variable. */
export async function tokenIssue(config: Config, options: IssueCommand): Promise<ExitStatus> {
  const lifetimeSeconds = parseDuration(options.expires);
  if (lifetimeSeconds === undefined)
    throw new ConfigError(
      `--expires: expected a number with s, m, h, d, w or y, for example 365d; found "${options.expires}".`,
    );
  if (options.subject.trim() === "" || options.subject.length > 256)
    throw new ConfigError("--subject: expected a name of 1 to 256 characters.");
  const key = signingKey(readKeys(config.keys_dir));
  if (key?.sign === undefined)
    throw new ConfigError(
      `Expected a key that can sign in ${config.keys_dir}; found none. Run radserve init first.`,
    );
  const { token, record } = issueToken(
    { ...key, sign: key.sign },
    {
      subject: options.subject,
      lifetimeSeconds,
      admin: options.admin === true,
      inputRoots: options.inputRoot?.map((folder) => path.resolve(folder)),
      outputRoots: options.outputRoot?.map((folder) => path.resolve(folder)),
      issuer: config.issuer,
      audience: config.audience,
    },
  );
  await recordToken(config.keys_dir, record);
  remark(`State directory: ${config.state_dir}`);
  remark(`Key: ${key.kid} (${key.algorithm}); token ${record.jti} of ${record.sub}, until ${record.expires}`);
  print(token);
  return 0;
}

export async function tokenList(config: Config, json: boolean): Promise<ExitStatus> {
  const tokens = await listTokens(config.keys_dir);
  if (json) {
    print(JSON.stringify(tokens, null, 2));
    return 0;
  }
  const now = new Date().toISOString();
  const rows = tokens.map((token) => {
    const state = token.revoked ? "revoked" : token.expires <= now ? "expired" : "valid";
    return [token.jti, token.sub, state, token.expires, token.kid, token.admin ? "admin" : ""].join("\t");
  });
  print(["JTI\tSUBJECT\tSTATE\tEXPIRES\tKEY\t", ...rows].join("\n"));
  return 0;
}

export async function tokenRevoke(config: Config, jti: string): Promise<ExitStatus> {
  if (jti.includes(".") || jti.length > 256)
    throw new RadserveError(
      "bad_request",
      "Expected the token's jti, as `radserve token list` shows it; found something else.",
    );
  const { known, already } = await revokeToken(config.keys_dir, jti);
  remark(`${already ? "Was revoked before" : "Revoked"}: ${jti}`);
  if (!known) remark("No token with that jti was issued from this keys folder; it is refused all the same.");
  return 0;
}
