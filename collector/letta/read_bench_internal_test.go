package letta

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"
)

// messagePage returns a page of 16 messages: calls with JSON arguments of some KB and their
// results, with escapes and non-ASCII text.
func messagePage() string {
	r := rand.New(rand.NewPCG(5, 6))
	words := []string{"return", "value", "größer", "“quoted”", "data\tpath", "日本語", "if err != nil {", "naïve", "\\d+", "x = 3.5", "<b>", "π"}
	prose := func(n int) string {
		var b strings.Builder
		for b.Len() < n {
			b.WriteString(words[r.IntN(len(words))])
			b.WriteByte(" \n      "[r.IntN(8)])
		}
		return b.String()
	}
	var all []any
	for i := range 16 {
		step := fmt.Sprintf("step-%08x-b18a-4187-beac-ce4380a7be6c", i/2)
		m := map[string]any{
			"id": fmt.Sprintf("message-%08x-9e7b-4996-b710-e33cee517d88", i), "date": "2026-11-21T09:41:30+00:00", "name": nil,
			"otid": nil, "sender_id": nil, "step_id": step, "is_err": nil, "seq_id": nil, "run_id": "run-bfc73e33-f0bb-46a4-a5d1-6d262a940d17",
		}
		if i%2 == 0 {
			arguments, _ := Marshal(map[string]any{"path": fmt.Sprintf("src/%d.py", i), "content": prose(2500)})
			call := map[string]any{"name": "write_file", "arguments": string(arguments), "tool_call_id": fmt.Sprint("call_", i)}
			m["message_type"], m["tool_call"], m["tool_calls"] = TypeToolCall, call, []any{call}
		} else {
			text := prose(2000)
			m["message_type"], m["status"], m["tool_return"], m["tool_call_id"], m["stdout"], m["stderr"] = TypeToolReturn, "success", text, fmt.Sprint("call_", i-1), nil, nil
			m["tool_returns"] = []any{map[string]any{"type": "tool", "tool_return": text, "status": "success", "tool_call_id": fmt.Sprint("call_", i-1), "stdout": nil, "stderr": nil}}
		}
		all = append(all, m)
	}
	text, _ := Marshal(all)
	return string(text)
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

// TestGateReadMessages checks that reading takes a third of the time of encoding/json.
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
	best := func(read func() error) time.Duration {
		least := time.Hour
		for range 7 {
			runtime.GC()
			start := time.Now()
			for range 5 {
				if err := read(); err != nil {
					t.Fatal(err)
				}
			}
			least = min(least, time.Since(start)/5)
		}
		return least
	}
	body := []byte(page)
	ours := best(func() error { _, err := Read[Messages](string(body)); return err })
	theirs := best(func() error { return json.Unmarshal(body, new([]plainMessage)) })
	ratio := theirs.Seconds() / ours.Seconds()
	t.Logf("%v, encoding/json %v: %.1f times as fast", ours, theirs, ratio)
	if ratio < 3 && !raceEnabled {
		t.Errorf("%.1f times as fast as encoding/json, want ≥ 3", ratio)
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
