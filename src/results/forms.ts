/**
 * A site's decisions about the form of results, for all models: neither a request nor a manifest
 * makes them.
 */

/**
 * How segmentations are written: one bit plane for each label (PS3.3 A.51), which every reader has,
 * or one label map for all labels (Supplement 243), which is smaller where there are many.
 */
export const SEGMENTATION_TYPES = ["binary", "labelmap"] as const;
export type SegmentationType = (typeof SEGMENTATION_TYPES)[number];

export interface ResultForms {
  /** Opacity of the tint of masks on pictures, 0 to 1. */
  overlayOpacity: number;
  segmentationType: SegmentationType;
}

/** The forms unless the settings say others. What lies under a tint of this opacity still shows. */
export const RESULT_FORMS: ResultForms = { overlayOpacity: 0.3, segmentationType: "binary" };
