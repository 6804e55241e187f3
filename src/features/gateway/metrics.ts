/** Figures of the gateway for Prometheus. */
import { counter, gauge, type ReadMetric, type MetricSample } from "../../server/metrics.js";
import type { DestinationFigures, WebhookFigures } from "./deliver/messages.js";
import type { DeliveryService } from "./deliver/service.js";
import type { ReceptionFigures } from "./receive/messages.js";
import type { ReceptionService } from "./service.js";

export function deliveryMetrics(deliveries: Pick<DeliveryService, "figures">): ReadMetric[] {
  const each =
    (pick: (figures: DestinationFigures) => readonly MetricSample[]) => (): MetricSample[] =>
      Object.entries(deliveries.figures.destinations).flatMap(([destination, figures]) =>
        pick(figures).map(([labels, value]): MetricSample => [{ destination, ...labels }, value]),
      );
  const ofWebhooks =
    (pick: (figures: WebhookFigures) => readonly MetricSample[]) => (): MetricSample[] =>
      Object.entries(deliveries.figures.webhooks).flatMap(([webhook, figures]) =>
        pick(figures).map(([labels, value]): MetricSample => [{ webhook, ...labels }, value]),
      );
  return [
    gauge(
      "radserve_webhook_messages",
      "Messages to webhooks that are to be told, or were given up",
      ofWebhooks(({ due, given_up }) =>
        Object.entries({ due, given_up }).map(([state, count]) => [{ state }, count]),
      ),
    ),
    gauge(
      "radserve_webhook_away",
      "1 while a webhook takes no messages",
      ofWebhooks(({ away_since }) => [[{}, away_since === null ? 0 : 1]]),
    ),
    counter(
      "radserve_webhook_messages_total",
      "Messages to webhooks by outcome: told, given_up",
      ofWebhooks(({ totals }) =>
        Object.entries(totals).map(([state, count]) => [{ state }, count]),
      ),
    ),
    gauge(
      "radserve_deliveries",
      "Objects that wait to be sent, wait for proof, or were set aside",
      each(({ waiting, sent, set_aside }) =>
        Object.entries({ waiting, sent, set_aside }).map(([state, count]) => [{ state }, count]),
      ),
    ),
    gauge(
      "radserve_destination_away",
      "1 while a destination accepts nothing",
      each(({ away_since }) => [[{}, away_since === null ? 0 : 1]]),
    ),
    counter(
      "radserve_deliveries_total",
      "Objects by outcome: sent, proven, accepted, refused, unproven",
      each(({ totals }) => Object.entries(totals).map(([state, count]) => [{ state }, count])),
    ),
  ];
}

export function receptionMetrics(reception: Pick<ReceptionService, "figures">): ReadMetric[] {
  const by =
    (label: string, read: (figures: ReceptionFigures) => Record<string, number>) =>
    (): MetricSample[] =>
      Object.entries(read(reception.figures)).map(([key, count]) => [{ [label]: key }, count]);
  return [
    gauge(
      "radserve_gateway_associations",
      "Open DICOM associations",
      () => reception.figures.associations,
    ),
    counter(
      "radserve_gateway_objects_total",
      "Objects that were received",
      by("listener", (all) => all.objects),
    ),
    counter(
      "radserve_gateway_bytes_total",
      "Bytes of objects that were received",
      by("listener", (all) => all.bytes),
    ),
    counter(
      "radserve_gateway_refused_total",
      "Objects and associations that were refused",
      by("reason", (all) => all.refused),
    ),
    counter(
      "radserve_gateway_refused_contexts_total",
      "Presentation contexts that were refused, by peer and SOP class",
      () => reception.figures.contexts.map(({ count, ...labels }): MetricSample => [labels, count]),
    ),
    counter(
      "radserve_gateway_refused_callers_total",
      "Callers that were refused, by title or fault of the certificate",
      () => reception.figures.callers.map(({ count, ...labels }): MetricSample => [labels, count]),
    ),
    gauge("radserve_received_waiting", "Received series that are not yet a job, by why", () => {
      const { waiting, unmade } = reception.figures;
      const { no_rule: rule = 0, ...others } = unmade;
      return [
        [{ for: "quiet" }, waiting],
        [{ for: "rule" }, rule],
        ...Object.entries(others).map(([why, count]): MetricSample => [{ for: why }, count]),
      ];
    }),
    gauge(
      "radserve_received_unused_objects",
      "Received objects that no job is made of, by SOP class",
      by("sop_class", (all) => all.classes),
    ),
  ];
}
