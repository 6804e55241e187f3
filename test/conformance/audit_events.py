"""AuditEvents, one a line on standard input, read by fhir.resources as FHIR R4B, whose AuditEvent is that of R4."""
import sys

from fhir.resources.R4B.auditevent import AuditEvent

count = 0
for line in sys.stdin:
    AuditEvent.model_validate_json(line)
    count += 1
print(count)
