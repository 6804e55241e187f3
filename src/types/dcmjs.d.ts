/**
 * The part of dcmjs that is used here: its data dictionary and its serialiser. The package ships no
 * types.
 */
declare module "dcmjs" {
  export interface DictionaryEntry {
    /** "(0028,0010)" */
    tag: string;
    /** A VR, or "xs" (US or SS), "ox" (OB or OW), "lt" (US, SS or OW), "up" (UL). */
    vr: string;
    vm: string;
    name: string;
  }

  /** One element of a DICOM JSON-like dictionary, keyed by eight hexadecimal digits. */
  export interface DictElement {
    vr: string;
    Value: unknown[];
  }

  export interface DicomDict {
    dict: Record<string, DictElement>;
    /** Part 10 file: preamble, file meta information and data set in the meta's transfer syntax. */
    write(options?: Record<string, unknown>): ArrayBuffer;
  }

  interface Data {
    DicomMetaDictionary: {
      /** Lazily built: look entries up by key, its keys cannot be listed. */
      dictionary: Readonly<Record<string, DictionaryEntry | undefined>>;
      nameMap: Readonly<Record<string, DictionaryEntry | undefined>>;
      sopClassNamesByUID: Readonly<Record<string, string | undefined>>;
      denaturalizeDataset(dataset: Record<string, unknown>): Record<string, DictElement>;
    };
    DicomDict: new (meta: Record<string, DictElement>) => DicomDict;
    DicomMessage: {
      /** A Part 10 file as elements. */
      readFile(file: ArrayBuffer): {
        meta: Record<string, DictElement>;
        dict: Record<string, DictElement>;
      };
    };
  }

  const dcmjs: { data: Data };
  export default dcmjs;
}
