package prompt

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
)

// TestWindow checks the window of calls, with timestamps of all three forms.
func TestWindow(t *testing.T) {
	t.Parallel()
	said := func(step string, kind letta.MessageType, date string) letta.Message {
		return letta.Message{Type: kind, StepID: step, Date: letta.Time(date)}
	}
	two := letta.Messages{
		said("", letta.TypeUser, "2026-11-24T23:59:47Z"), said("a", letta.TypeUser, "2026-11-24T23:59:46Z"), // of the request
		said("old", letta.TypeToolReturn, "2026-11-24T23:59:47.5Z"), // an answer to a call of an earlier send
		said("a", letta.TypeToolCall, "2026-11-24T23:59:50+00:00"), said("a", letta.TypeToolReturn, "2026-11-24T23:59:58.25Z"),
		said("a", letta.TypeUser, "2027-01-01T00:00:00Z"), // a heartbeat
		said("b", letta.TypeReasoning, "2026-11-25T00:00:07"), said("b", letta.TypeAssistant, "2026-11-25T00:00:07"),
	}
	for _, tt := range []struct {
		name     string
		messages letta.Messages
		call     int
		from, to string // in seconds after 23:59:00; empty: not bounded
	}{
		{"the first call", two, 0, "47.5", "50.999999999"},
		{"the second", two, 1, "58.25", "67.999999999"},
		{"without the request", two[3:], 0, "", ""},
		{"the second, without the request", two[3:], 1, "58.25", "67.999999999"},
		{"the first left nothing", slices.Concat(two[:3], two[6:]), 0, "47.5", "67.999999999"},
		{"the last left nothing", two[:5], 1, "", ""},
		{"no stamps", two[:3], 0, "", ""},
		{"backwards", append(letta.Messages{said("", letta.TypeUser, "2026-11-25T01:00:00Z")}, two[3:]...), 0, "", ""},
		{"a stamp that is none", append(slices.Clone(two), said("b", letta.TypeAssistant, "today")), 0, "", ""},
		{"weeks apart", append(letta.Messages{said("", letta.TypeUser, "2026-11-10T00:00:00Z")}, two[3:]...), 0, "", ""},
	} {
		s := send{stored: tt.messages, steps: []letta.Step{{ID: "a"}, {ID: "b"}}, calls: 2}
		w, at := s.window(tt.call), time.Date(2026, 11, 24, 23, 59, 0, 0, time.UTC)
		from, to := fmt.Sprint(w.from.Sub(at).Seconds()), fmt.Sprint(w.to.Sub(at).Seconds())
		if w == (window{}) {
			from, to = "", ""
		}
		if from != tt.from || to != tt.to {
			t.Errorf("%s: from %q to %q, want %q to %q", tt.name, from, to, tt.from, tt.to)
		}
	}
}

// TestTimes checks that times finds every possible output, and fails if there are too many.
func TestTimes(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 24, 23, 59, 30, 0, time.UTC)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		zone    *time.Location
		from    time.Time
		lasts   time.Duration
		formats []string
		want    int
		err     error
	}{
		{nil, at, 0, []string{"%Y-%m-%d"}, 2, nil},
		{nil, at, time.Minute, []string{"%Y-%m-%d"}, 2, nil},
		{nil, at.Add(-12 * time.Hour), 0, []string{"%Y-%m-%d"}, 3, nil},
		{nil, at, 0, []string{"%H"}, 24, nil},
		{nil, at, 0, []string{"%H", "%d"}, 27, nil},
		{nil, at, 0, []string{"%H:%M"}, 0, errManyTimes},
		{nil, at, 0, nil, 1, nil},
		{time.UTC, at, 29 * time.Second, []string{"%Y-%m-%d"}, 1, nil},
		{time.UTC, at, 30 * time.Second, []string{"%Y-%m-%d"}, 2, nil},
		{berlin, at, time.Minute, []string{"%Y-%m-%d"}, 1, nil},
		{berlin, at, 2 * time.Second, []string{"%H:%M:%S"}, 3, nil},
		{berlin, at, time.Minute, []string{"%S"}, 0, errManyTimes},
		{berlin, at, 0, []string{"%f"}, 0, errManyTimes},
		// When summer time ends, both offsets apply to the whole window.
		{berlin, time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC), 90 * time.Minute, []string{"%H"}, 4, nil},
	} {
		w := window{tt.from, tt.from.Add(tt.lasts)}
		m := Model{Zone: tt.zone}
		all, err := times(w, m.offsets(w), tt.formats)
		if len(all) != tt.want && err == nil || !errors.Is(err, tt.err) {
			t.Errorf("%v %v %v %q: %d times, %v; want %d, %v", tt.zone, tt.from, tt.lasts, tt.formats, len(all), err, tt.want, tt.err)
		}
	}
}
