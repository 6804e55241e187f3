/** The name of a fault of the system (errno(3)) or of Node, for example ENOENT; empty where it has none. */
export function errno(thrown: unknown): string {
  return thrown instanceof Error && "code" in thrown && typeof thrown.code === "string" ? thrown.code : "";
}
