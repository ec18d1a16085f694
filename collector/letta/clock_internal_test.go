package letta

import (
	"net/http"
	"testing"
	"time"
)

// TestRetryAfterDate checks that a date counts by the server's clock and that the wait is
// bounded.
func TestRetryAfterDate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	for _, test := range []struct {
		name   string
		server time.Duration // how far its clock is ahead of ours
		dated  bool
		until  time.Duration // by the server's clock
		want   time.Duration
	}{
		{"clocks agree", 0, true, 30 * time.Second, 30 * time.Second},
		{"clocks agree, no date", 0, false, 30 * time.Second, 30 * time.Second},
		{"ours is a day behind", day, true, 30 * time.Second, 30 * time.Second},
		{"ours is a day ahead", -day, true, 30 * time.Second, 30 * time.Second},
		{"ours is a day behind, no date", day, false, 30 * time.Second, maxRetryAfter},
		{"ours is a day ahead, no date", -day, false, 30 * time.Second, 0},
		{"a year", 0, true, 365 * day, maxRetryAfter},
		{"over", day, true, -time.Second, 0},
	} {
		server := now.Add(test.server)
		h := http.Header{"Retry-After": {server.Add(test.until).Format(http.TimeFormat)}}
		if test.dated {
			h.Set("Date", server.Format(http.TimeFormat))
		}
		if got := retryAfter(h, now); got != test.want {
			t.Errorf("%s: wait %v, want %v", test.name, got, test.want)
		}
	}
}
