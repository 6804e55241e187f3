/** How a data set is encoded; it can change from item to item (UN content, PS3.5 section 6.2.2). */
export interface Encoding {
  explicit: boolean;
  littleEndian: boolean;
}

/** Codestreams a transfer syntax allows; what is found in the bytes is checked against it. */
export type Codestream = "jpeg" | "jpeg-ls" | "jpeg2000" | "htj2k" | "jpeg-xl";
