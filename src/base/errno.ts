/** The name of a fault of the system (errno(3)), of Node or of PostgreSQL, for example ENOENT or 57P03; empty where it has none. */
export function errno(thrown: unknown): string {
  return thrown instanceof Error && "code" in thrown && typeof thrown.code === "string" ? thrown.code : "";
}
