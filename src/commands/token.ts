/** `radserve token issue | list | revoke`. */
import path from "node:path";
import jwt from "jsonwebtoken";
import { durationText, parseDuration } from "../base/duration.js";
import { LONGEST_JTI, issueToken } from "../server/tokens.js";
import { requireFolder, type Config } from "../config.js";
import { ConfigError } from "../base/errors.js";
import { signingKey, type Key } from "../files/key-file.js";
import { listTokens, recordToken, revokeToken, type TokenRecord } from "../server/token-records.js";
import { narrowRoots, realPathToBe } from "../files/roots.js";
import { usableKeys } from "./key.js";
import { recordCommand } from "./recorded.js";
import { print, remark, type ExitStatus, type JsonOption } from "./run.js";

export interface IssueCommand {
  subject: string;
  expires: string;
  inputRoot?: string[];
  outputRoot?: string[];
  destination?: string[];
  /** False: its results are delivered nowhere. */
  deliver?: boolean;
  admin?: boolean;
}

/**
 * A misspelt folder makes a token that every request is refused with; the server may still have
 * other roots than we.
 */
async function remarkUnreachable(
  side: "input" | "output",
  folders: readonly string[] = [],
  configured: readonly string[],
): Promise<void> {
  if (configured.length === 0) return;
  const roots = (await Promise.all(configured.map(realPathToBe))).filter(
    (root) => root !== undefined,
  );
  for (const folder of folders)
    if ((await narrowRoots(roots, [folder])).length === 0)
      remark(
        `--${side}-root ${folder} has nothing in common with RADSERVE_${side.toUpperCase()}_ROOTS as set here: ` +
          "with them this token reaches nothing there.",
      );
}

/**
 * Signs a token with the newest key, writes it into the audit and then records it.
 * @throws ConfigError if an option is wrong, no key can sign or the audit cannot be written
 */
export async function newToken(
  config: Config,
  options: IssueCommand,
): Promise<{ token: string; record: TokenRecord; key: Key }> {
  const lifetimeSeconds = parseDuration(options.expires);
  if (lifetimeSeconds === undefined)
    throw new ConfigError(
      `--expires: expected a number with s, m, h, d, w or y, for example 365d, and at most 100y; found "${options.expires}".`,
    );
  const longest = config.token_max_age ?? Infinity;
  if (lifetimeSeconds > longest)
    throw new ConfigError(
      `--expires: expected at most ${durationText(longest)}, as RADSERVE_TOKEN_MAX_AGE says; found "${options.expires}".`,
    );
  if (options.subject.trim() === "" || options.subject.length > 256)
    throw new ConfigError("--subject: expected a name of 1 to 256 characters.");
  // Node.js reads bytes that are no UTF-8 as U+FFFD: two names would become one
  const unfit = Object.entries({
    subject: [options.subject],
    "input-root": options.inputRoot ?? [],
    "output-root": options.outputRoot ?? [],
    destination: options.destination ?? [],
  }).find(([, texts]) => texts.some((text) => /[\ufffd\p{Cc}]/u.test(text)));
  if (unfit !== undefined)
    throw new ConfigError(
      `--${unfit[0]}: expected a name in UTF-8 without control characters; found other bytes, U+FFFD or a control character.`,
    );
  const keys = usableKeys(config);
  const key = signingKey(keys);
  if (key?.sign === undefined)
    throw new ConfigError(
      `Expected a key that can sign in ${config.keys_dir}; found ${keys.length === 0 ? "none. Run radserve init first, or set RADSERVE_KEYS_DIR as the server has it" : "only keys that check. Run radserve key new, or issue tokens where the private key is"}.`,
    );
  const inputRoots = options.inputRoot?.map((folder) => path.resolve(folder));
  const outputRoots = options.outputRoot?.map((folder) => path.resolve(folder));
  await remarkUnreachable("input", inputRoots, config.input_roots);
  await remarkUnreachable("output", outputRoots, config.output_roots);
  const { token, record } = issueToken(
    { ...key, sign: key.sign },
    {
      subject: options.subject,
      lifetimeSeconds,
      admin: options.admin === true,
      inputRoots,
      outputRoots,
      destinations: options.deliver === false ? [] : options.destination,
      issuer: config.issuer,
      audience: config.audience,
    },
  );
  const { jti, sub: subject, admin } = record;
  await recordCommand(config, {
    command: "token issue",
    token: { jti, subject, admin },
    kid: key.kid,
  });
  await recordToken(config.keys_dir, record);
  return { token, record, key };
}

/** The token alone goes to standard output, so that it can be caught in a variable. */
export async function tokenIssue(config: Config, options: IssueCommand): Promise<ExitStatus> {
  const { token, record, key } = await newToken(config, options);
  remark(`State directory: ${config.state_dir}`);
  remark(
    `Key: ${key.kid} (${key.algorithm}); token ${record.jti} of ${record.sub}, until ${record.expires}`,
  );
  print(token);
  return 0;
}

export async function tokenList(config: Config, { json }: JsonOption): Promise<ExitStatus> {
  const tokens = await listTokens(config.keys_dir);
  if (json === true) {
    print(JSON.stringify(tokens, null, 2));
    return 0;
  }
  const now = new Date().toISOString();
  const rows = tokens.map((token) => {
    const state = token.revoked ? "revoked" : token.expires <= now ? "expired" : "valid";
    return [
      token.jti,
      token.sub.replace(/[\t\n]/g, " "),
      state,
      token.expires,
      token.kid,
      token.admin ? "admin" : "",
    ].join("\t");
  });
  print(["JTI\tSUBJECT\tSTATE\tEXPIRES\tKEY\t", ...rows].join("\n"));
  return 0;
}

export async function tokenRevoke(config: Config, jti: string): Promise<ExitStatus> {
  if (!config.keys_dir_is_default) requireFolder(config.keys_dir, "RADSERVE_KEYS_DIR");
  const found =
    jti === "" ? "nothing" : jti.length > LONGEST_JTI ? `${jti.length} characters` : undefined;
  if (found !== undefined || jwt.decode(jti, { complete: true }) !== null)
    throw new ConfigError(
      `Expected the token's jti, 1 to ${LONGEST_JTI} characters, as \`radserve token list\` or its payload shows it; ` +
        `found ${found ?? "the token itself"}.`,
    );
  const { known, already } = await revokeToken(config.keys_dir, jti);
  // A revocation that cannot be written down is better than none
  await recordCommand(config, { command: "token revoke", token: { jti } }).catch((error: unknown) =>
    remark(`Not in the audit: ${error instanceof Error ? error.message : "it cannot be written"}`),
  );
  remark(`${already ? "Was revoked before" : "Revoked"}: ${jti}`);
  if (!known)
    remark("No token with that jti was issued from this keys folder; it is refused all the same.");
  return 0;
}
