package letta

import (
	"encoding/json"
	"runtime"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// messagePage returns a page of 17 messages: calls with JSON arguments of some KB and their results,
// with escapes and non-ASCII text.
func messagePage() string {
	body := tokenizetest.Reply(5, tokenizetest.Options{Tokens: 4_000, Turns: 17, Text: true})
	return string(RawJSON(body).Member("messages"))
}

// A plainMessage has the same members as a Message, for encoding/json.
type plainMessage struct {
	Type      string          `json:"message_type"`
	ID        string          `json:"id"`
	Date      string          `json:"date"`
	StepID    string          `json:"step_id"`
	RunID     string          `json:"run_id"`
	Content   json.RawMessage `json:"content"`
	ToolCalls []struct {
		Name       string `json:"name"`
		Arguments  string `json:"arguments"`
		ToolCallID string `json:"tool_call_id"`
	} `json:"tool_calls"`
	ToolReturns []struct {
		Text       string `json:"tool_return"`
		Status     string `json:"status"`
		ToolCallID string `json:"tool_call_id"`
	} `json:"tool_returns"`
}

// TestGateReadMessages checks that reading takes a quarter of the time of encoding/json.
func TestGateReadMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for some seconds: run without -short")
	}
	page := messagePage()
	if len(page) < 80_000 || len(page) > 110_000 {
		t.Fatalf("the page has %d bytes, want some 90 KB", len(page))
	}
	if allocs := testing.AllocsPerRun(20, func() { _, _ = Read[Messages](page) }); allocs > 40 {
		t.Errorf("%v allocations, want ≤ 40", allocs)
	} else {
		t.Logf("%v allocations for a page of %d bytes", allocs, len(page))
	}
	body := []byte(page)
	ours, theirs := time.Hour, time.Hour
	measure := func(least *time.Duration, read func() error) {
		runtime.GC()
		start := time.Now()
		for range 5 {
			if err := read(); err != nil {
				t.Fatal(err)
			}
		}
		*least = min(*least, time.Since(start)/5)
	}
	for range 15 {
		measure(&ours, func() error { _, err := Read[Messages](string(body)); return err })
		measure(&theirs, func() error { return json.Unmarshal(body, new([]plainMessage)) })
	}
	ratio := theirs.Seconds() / ours.Seconds()
	t.Logf("%v, encoding/json %v: %.1f times as fast", ours, theirs, ratio)
	if ratio < 4 && !raceEnabled {
		t.Errorf("%.1f times as fast as encoding/json, want ≥ 4", ratio)
	}
}

func BenchmarkReadMessages(b *testing.B) {
	page := []byte(messagePage())
	b.Run("scanner", func(b *testing.B) {
		b.SetBytes(int64(len(page)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Read[Messages](string(page)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
