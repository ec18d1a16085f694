package letta

import (
	"fmt"
	"time"
)

// A Time is a timestamp as the server printed it. The server uses three forms: with an offset, with
// Z and microseconds, and without a zone. The form without a zone means UTC and is used for the
// completion of a run.
type Time string

// Time parses the timestamp.
func (t Time) Time() (time.Time, error) {
	for _, layout := range [...]string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999"} {
		if at, err := time.Parse(layout, string(t)); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("letta: cannot parse timestamp %q", string(t))
}
