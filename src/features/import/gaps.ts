/** Collects what a manifest cannot say of a network that is imported. */

export interface Gap {
  /** The field of the file that is read, for example plans.json: preprocessor_name. */
  field: string;
  /** The finding, and what follows of it. */
  message: string;
  /** Whether results without it would be wrong: then nothing is written. */
  wrong: boolean;
}

export class Gaps {
  readonly all: Gap[] = [];

  /** Without it results are wrong. */
  refuse(field: string, message: string): void {
    this.all.push({ field, message, wrong: true });
  }

  /**
   * Whether something is refused at a field that matches: what follows of it need not be said too.
   */
  have(field: RegExp): boolean {
    return this.all.some((gap) => gap.wrong && field.test(gap.field));
  }

  /** Results are right without it, and other than they could be. */
  note(field: string, message: string): void {
    this.all.push({ field, message, wrong: false });
  }
}

/** Three sides of the patient, each axis once. */
export const isOrientation = (letters: string | undefined): letters is string =>
  /^(?=.*[LR])(?=.*[AP])(?=.*[SI])[LRAPSI]{3}$/.test(letters ?? "");

/** Facts that the files do not tell, or not in DICOM's words. */
export interface ImportChoices {
  /** Which configuration of plans.json. */
  configuration?: string;
  /**
   * The patient's sides to which depth, height and width of the training images grow; of nnU-Net
   * before transpose_forward, of MONAI in the order of its arrays.
   */
  orientation?: string;
  modality?: string;
  /** nnU-Net's 2d: a model of single images, and not of the slices of a series. */
  single?: boolean;
  /** `all`, `none`, or axes of the network from 0, with commas. */
  mirror?: string;
  /** The folder's name of the model whose labels a cascade is given. */
  previous?: string;
  /**
   * nnU-Net, several channels: a JSON file that says by a channel's name which series it is
   * (rolesOf).
   */
  roles?: string;
}

/** The parts of a manifest that come from the files. */
export interface Imported {
  accepts: Record<string, unknown>;
  input: Record<string, unknown>;
  output: Record<string, unknown>;
  /** The output names its tensors, of which the graph has several. */
  namesTensors?: boolean;
  tiling?: Record<string, unknown> | undefined;
  /** Roles of a network with several channels; fields that the person has to fill in are null. */
  roles?: Record<string, unknown>[];
  about: { version: string; manufacturer: string; description: string; intended_use: string };
}
