/**
 * Lengths of time that somebody sits through: leases, rests, delays before another try. One table,
 * so that tests of what comes after them can make them short; limits that only a fault reaches
 * stand where they are used.
 */
import { getEnvironmentData, setEnvironmentData } from "node:worker_threads";

/** All in milliseconds. Read at each use. */
export const durations = {
  // Connections and requests
  /** Within it the headers of a request must have come. */
  requestHeaders: 5_000,
  /** Within it a request must have come whole; a file that is uploaded may take an hour. */
  requestWhole: 60_000,
  /** Within it a client must have agreed on TLS. */
  tlsHandshake: 10_000,
  /** How often it is looked for requests that have taken longer. */
  requestLook: 1_000,
  /**
   * On stop, how long a quiet connection is kept: its request may be on the way, and gets an
   * answer.
   */
  connectionLinger: 300,
  /** On stop, what stood still for so long, of a body or an answer, is given up. */
  stoppingPause: 5_000,
  /**
   * A connection that has been quiet for less is not closed for another: its request may be on the
   * way.
   */
  connectionQuiet: 1_000,
  /** How often sums of refused connections are logged while there is something to tell. */
  refusedConnections: 10_000,
  /** How much later a 401 comes to an address that has had many tokens refused. */
  refusedToken: 1_000,
  /**
   * Keys and revocations that were seen so long ago are looked at again before a token is judged by
   * them.
   */
  keysFresh: 300,
  /** How long somebody waits for a folder of keys whose share is slow; then those known hold. */
  keysAnswer: 200,
  /** The same where no key is known yet. */
  keysFirst: 5_000,
  /** A key that is not known is looked for again where the last look was so long ago. */
  keysUnknown: 50,
  /** While nobody asks, keys are looked at for the log alone. */
  keysLook: 3_000,
  /** The keys of who signs people in: looked at again when they are so old, */
  signInKeys: 600_000,
  /** for one that is not known, and after a failure, not sooner than this after the last look, */
  signInAgain: 10_000,
  /** they have to come within this, */
  signInAnswer: 5_000,
  /** and hold for so long while they cannot be read. */
  signInKeysLast: 3_600_000,
  /** For how long after a request that a disk has failed that is a condition. */
  diskFault: 60_000,
  /** How often it is looked for new certificates. */
  certificatesLook: 1_000,
  /** How often folders, disks and all that may be wrong are looked at. */
  conditionsLook: 5_000,
  /** A folder that does not answer a look within this counts as silent. */
  folderLook: 2_000,

  /** How often the running time is written down, by which things are old enough to be removed. */
  clockTick: 60_000,

  // The audit
  /** How long a line may take to be on the disk. Then what waits for it is refused. */
  auditLine: 10_000,
  /** How long somebody waits for the lock of the audit, which others hold while they write. */
  auditLock: 5_000,
  /** How often writing is tried while it fails and nobody asks for it. */
  auditRetry: 2_000,
  /**
   * For each address and reason, the second refused token within this time is only counted, and the
   * sum told at its end.
   */
  auditWindow: 60_000,

  // Models
  /**
   * Processor time in which the process that tries a model may look at its graphs, which takes
   * moments; functions that call functions may multiply without end.
   */
  graphLook: 60_000,
  /** How long ONNX Runtime may take to make the sessions of a model; the largest take minutes. */
  modelLoad: 600_000,
  /**
   * How long each of the first runs of a model may take while it is loaded; a graph with a loop may
   * never end. Large networks take some seconds, and many times that on a machine with other work.
   */
  firstRun: 600_000,
  /**
   * How long a server that starts waits for the models that it can do without. The rest of them
   * join it later, as after a reload.
   */
  optionalModels: 60_000,

  // Worker threads and results
  /**
   * How often it is asked whether the event loop of a worker thread turns; after ten times without,
   * it is stuck.
   */
  threadPing: 1_000,
  /** How long a task may go on after it was told to stop. Then its thread is ended. */
  lastMoment: 1_000,
  /** How long a commit may go on on such a thread, where it was cancelled after it had begun. */
  lastCommit: 30_000,
  /** How long work waits for room in memory before it is refused. */
  memoryRoom: 10_000,
  /** A worker thread that has had no work for so long gives memory back. */
  threadMoment: 1_000,
  /**
   * A decoder process without work ends after so long, which is less than the minute of idle worker
   * threads.
   */
  decoderIdle: 45_000,
  /**
   * Without a sign of life for so long, a name lock may be taken over. It is longer than one frame
   * may block a thread.
   */
  nameLease: 30_000,

  // Gateway
  /** Within it a PDU must have come whole, or been taken by the peer. */
  pduWhole: 30_000,
  /**
   * An association on which nothing comes for so long is ended; some peers hold one between two
   * series.
   */
  associationIdle: 120_000,
  /** What is received becomes a job after so long, or ten times `quiet`, though more comes. */
  receivedMost: 3_600_000,
  /** Refusals of one sender count where they are so far apart, */
  refusalsApart: 5_000,
  /** and are forgotten when there was none for so long. */
  refusalsForgotten: 3_600_000,
  /** How often what has come is told for /metrics and the conditions. */
  gatewayFigures: 1_000,
  /**
   * When opening a port, or making a job of what was received, is tried again; each further time
   * twice as late...
   */
  gatewayRetry: 2_000,
  /** ...up to this. */
  gatewayRetryMost: 60_000,
  /**
   * However lively a destination is, a request to it and its answer, or reading one object back,
   * takes no longer.
   */
  deliveryWhole: 3_600_000,
  /** A destination may take so long until it shows what it took, if its settings say nothing. */
  proofWithin: 600_000,
  /** The same until it reports its commitment. */
  commitmentWithin: 172_800_000,
  /**
   * A request for commitment that is not reported is made again after so long; each further time
   * twice as late...
   */
  commitmentAgain: 600_000,
  /** ...up to this. */
  commitmentAgainMost: 21_600_000,
  /** For how long an object is accepted that a peer moves after it has answered C-MOVE. */
  movedLate: 30_000,
  /** An object for which a destination alone has no resources is set aside after so long. */
  outOfResources: 259_200_000,
  /**
   * How often it is looked for results to be delivered that another node, or a command, has put
   * into the queue.
   */
  deliveryLook: 2_000,
  /** How often it is looked whether another node has retried what was set aside. */
  setAsideLook: 60_000,
  /**
   * How often the spool is looked through for what another node left, and for what may be removed.
   */
  spoolLook: 600_000,
  /** What a peer holds of the spool is counted again for its sake after so long at the earliest. */
  shareCount: 10_000,

  // Bulk jobs
  /**
   * A private database without an open job rests after so long without a call: it and its thread
   * hold 100 MiB.
   */
  bulkRest: 30_000,
  /**
   * How long an endpoint waits for a database that is being made or started: with what its
   * statements may take it is less than five seconds.
   */
  bulkOpening: 2_500,
  /** How often the bulk thread counts what is open, for /metrics and the rest. */
  bulkFigures: 5_000,
  /** Changes by other nodes are seen after so long; changes by this one, at once. */
  bulkPoll: 1_000,
  /** How often the queue of scans looks after itself; a second at least. */
  queueCare: 5_000,
  /** How often a node says that it lives. */
  nodeBeat: 3_000,
  /** A node that was silent for so long has missed a sign of life, which is shown. */
  nodeSilent: 6_000,
  /** A node that was silent for so long has lost its items. */
  nodeLease: 12_000,
  /**
   * For how long a node takes items ahead, and how long those that ended wait to be written down
   * together.
   */
  itemsAhead: 250,
  /**
   * When an item whose name is taken is looked at again: by then a lock without a sign of life has
   * been broken.
   */
  itemName: 31_000,
  /**
   * When an item that failed through no fault of its own is tried again; each further time so much
   * later.
   */
  itemRetry: 5_000,
  /**
   * For how long a job waits the first time for what mends itself, twice as long each further
   * time...
   */
  jobPause: 2_000,
  /** ...up to this. */
  jobPauseMost: 60_000,
  /** A job that no node works on counts as paused after this long: a node may be starting. */
  jobLonely: 20_000,
  /**
   * A job of which nothing was done, and that no node can run for so long, gets the models and the
   * release that the nodes have: one that starts again may have had the earlier ones.
   */
  jobPinAnew: 30_000,
  /** How long a claim on a job's report holds without being renewed. */
  reportClaim: 20_000,
  /** How often it is renewed. */
  reportRenew: 4_000,

  // Commands
  /** How long a command at a terminal waits for all of its answers together. */
  commandAnswer: 4_000,
  /** How long a command waits for each answer of a server, */
  commandCall: 30_000,
  /** and for one before which the server works through files or a queue. */
  commandWork: 300_000,
};

export type Durations = typeof durations;

/** Environment data of threads is of this process alone, and threads hand it on. */
const KEY = "radserve.durations";
Object.assign(durations, getEnvironmentData(KEY));

/**
 * Gives this process, and threads that it starts from now on, other lengths. For tests alone: a
 * test's process calls it, and a program that it starts calls it in a module that is loaded before
 * the program (node --import). So nothing that somebody sets where Radserve runs can change a
 * lease.
 */
export function setDurations(others: Partial<Durations>): void {
  setEnvironmentData(KEY, Object.assign(durations, others));
}
