/**
 * The tasks of TotalSegmentator that can be imported, and why others cannot (read from
 * wasserth/TotalSegmentator, map_tasks_config.py, Apache-2.0: facts alone).
 */
import { errors } from "../../base/errors.js";

export interface Task {
  name: string;
  /** Numbers of nnU-Net's data sets, one for each part, in the order in which labels are laid. */
  datasets: readonly number[];
  /** mm between voxels, along all axes. */
  spacing: number;
  /** Part of a window by which the next one is further (nnU-Net: tile_step_size). */
  step: number;
  modality: "CT" | "MR";
}

export type Form = "default" | "fast" | "fastest";
const FORMS = { default: 1.5, fast: 3, fastest: 6 } as const;

type Datasets = Partial<Record<Form, readonly number[]>>;

const of = (modality: Task["modality"], step: number, datasets: Datasets) => ({
  modality,
  step,
  datasets,
});

const TASKS: Readonly<Record<string, ReturnType<typeof of>>> = {
  total: of("CT", 0.8, { default: [291, 292, 293, 294, 295], fast: [297], fastest: [298] }),
  total_v3: of("CT", 0.8, { default: [831, 832, 833, 834, 835], fast: [836], fastest: [837] }),
  total_mr: of("MR", 0.8, { default: [850, 851], fast: [852], fastest: [853] }),
  vertebrae_body: of("CT", 0.5, { default: [305] }),
  breasts: of("CT", 0.5, { default: [527] }),
  trunk_cavities: of("CT", 0.5, { default: [343] }),
  vertebrae_mr: of("MR", 0.5, { default: [756] }),
};

/** What a task does that no manifest says today, and the tasks that do it. */
const NOT_COVERED: readonly [string, string][] = [
  [
    "It has a crop: a rough network says where the task looks, which no manifest expresses yet",
    "lung_vessels cerebral_bleed hip_implant pleural_pericard_effusion liver_vessels " +
      "head_glands_cavities headneck_bones_vessels head_muscles headneck_muscles " +
      "oculomotor_muscles lung_nodules kidney_cysts ventricle_parts liver_segments " +
      "liver_segments_mr liver_lesions liver_lesions_mr craniofacial_structures " +
      "abdominal_muscles teeth",
  ],
  [
    "It has a clean-up of its labels, which no manifest expresses yet",
    "body body_mr vertebrae_pp vertebrae_pp_refined",
  ],
  [
    "It needs a licence of its maker for its weights",
    "heartchambers_highres appendicular_bones appendicular_bones_mr tissue_types " +
      "tissue_types_mr tissue_4_types face face_mr brain_structures thigh_shoulder_muscles " +
      "thigh_shoulder_muscles_mr coronary_arteries aortic_sinuses renal_arteries aorta_annulus " +
      "aortic_dissection pulmonary_artery_landmarks",
  ],
  ["It takes the mean of all folds at a spacing of its own, which was not tried", "brain_aneurysm"],
];

/**
 * @throws RadserveError bad_request for a task that is not covered, by the word for what it does,
 * or that is not known
 */
export function taskOf(name: string, form: Form): Task {
  const why = NOT_COVERED.find(([, tasks]) => tasks.split(" ").includes(name));
  if (why !== undefined)
    throw errors.bad_request(`The task ${name} cannot be imported. ${why[0]}.`, { task: name });
  const task = Object.hasOwn(TASKS, name) ? TASKS[name] : undefined;
  if (task === undefined)
    throw errors.bad_request(
      `Expected a task of ${Object.keys(TASKS).join(", ")}; found "${name}".`,
      { task: name },
    );
  const datasets = task.datasets[form];
  if (datasets === undefined)
    throw errors.bad_request(`The task ${name} has no form "${form}". Leave --${form} out.`, {
      task: name,
    });
  const full = form === "default" ? name : `${name}, ${form}`;
  return {
    name: full,
    datasets,
    spacing: FORMS[form],
    step: task.step,
    modality: task.modality,
  };
}

/** Tasks that have a network of these data sets, each with the option for its form. */
export const tasksOf = (datasets: readonly number[]): string[] =>
  Object.entries(TASKS).flatMap(([name, task]) =>
    Object.entries(task.datasets)
      .filter(([, own]) => own.some((one) => datasets.includes(one)))
      .map(([form]) => (form === "default" ? name : `${name} --${form}`)),
  );
