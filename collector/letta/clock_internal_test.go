package letta

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestRetryAfterDate: a date is by the server's clock, however far that is from ours,
// and never means more than the bound.
func TestRetryAfterDate(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	for _, test := range []struct {
		name   string
		server time.Duration // its clock ahead of ours
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

// TestLastSign: the moment from which on a run is silent is counted by our monotonic
// clock, so that a clock that is set while the run is waited for makes it neither stuck
// nor young; and the server's clock may be years from ours.
func TestLastSign(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Date"] = nil // the test sets the clocks
		_, _ = io.WriteString(w, `[]`)
	}))
	t.Cleanup(web.Close)
	for _, test := range []struct {
		name  string
		ahead time.Duration
		age   time.Duration // of the run, by the server's clock
		want  time.Duration
	}{
		{"clocks agree", 0, 5 * time.Minute, 5 * time.Minute},
		{"the server is a year ahead", 365 * 24 * time.Hour, 5 * time.Minute, 5 * time.Minute},
		{"the server is a year behind", -365 * 24 * time.Hour, 5 * time.Minute, 5 * time.Minute},
		{"its clock went back since", 0, -time.Hour, 0},
	} {
		client, err := NewClient(ClientConfig{BaseURL: web.URL})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.CloseIdle)
		client.ahead.Store(&test.ahead)
		began := Time(time.Now().Add(test.ahead - test.age).UTC().Format(time.RFC3339Nano))
		last, err := (&agent{client: client}).lastSign(t.Context(), &Run{ID: "run-1", CreatedAt: &began})
		if err != nil {
			t.Fatal(err)
		}
		if silent := time.Since(last); silent < test.want || silent > test.want+time.Minute {
			t.Errorf("%s: silent for %v, want %v", test.name, silent, test.want)
		}
		if !strings.Contains(last.String(), " m=") {
			t.Errorf("%s: %v has no monotonic part", test.name, last)
		}
	}
}
