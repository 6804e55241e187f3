/** What is wrong with the reception, as its parts tell it. */

/** In the words of the conditions. */
export interface ReceptionTrouble {
  condition:
    | "dicom_port_closed"
    | "received_waiting"
    | "received_conflict"
    | "received_share_full"
    | "sender_refused"
    | "certificate_expires"
    | "certificate_refused";
  where: string;
  message: string;
}
