/** Of the tint of masks, 0 to 1, unless the settings say it: what lies under a tint still shows. */
export const OVERLAY_OPACITY = 0.3;
