package letta

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
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

// The former decoder of this package, which parsed every byte of a message several times.
type (
	keepingHead struct {
		ID          string      `json:"id"`
		Date        Time        `json:"date"`
		Name        *string     `json:"name"`
		MessageType MessageType `json:"message_type"`
		OTID        *string     `json:"otid"`
		SenderID    *string     `json:"sender_id"`
		StepID      *string     `json:"step_id"`
		IsErr       *bool       `json:"is_err"`
		SeqID       *int64      `json:"seq_id"`
		RunID       *string     `json:"run_id"`
	}
	keepingCalls struct {
		keepingHead
		ToolCall  *keepingCall    `json:"tool_call"`
		ToolCalls keepingCallList `json:"tool_calls"`
		Extra     map[string]json.RawMessage
	}
	keepingCallList []keepingCall
	keepingCall     struct {
		Name       *string                    `json:"name"`
		Arguments  *string                    `json:"arguments"`
		ToolCallID *string                    `json:"tool_call_id"`
		Extra      map[string]json.RawMessage `json:"-"`
	}
	keepingReturns struct {
		keepingHead
		ToolReturn  string                     `json:"tool_return"`
		Status      string                     `json:"status"`
		ToolCallID  string                     `json:"tool_call_id"`
		Stdout      []string                   `json:"stdout"`
		Stderr      []string                   `json:"stderr"`
		ToolReturns []keepingReturn            `json:"tool_returns"`
		Extra       map[string]json.RawMessage `json:"-"`
	}
	keepingReturn struct {
		Type       string                     `json:"type"`
		ToolReturn oldContent                 `json:"tool_return"`
		Status     string                     `json:"status"`
		ToolCallID string                     `json:"tool_call_id"`
		Stdout     []string                   `json:"stdout"`
		Stderr     []string                   `json:"stderr"`
		Extra      map[string]json.RawMessage `json:"-"`
	}
)

func (m *keepingCalls) UnmarshalJSON(b []byte) error {
	type plain keepingCalls
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

func (c *keepingCallList) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, (*[]keepingCall)(c))
}

func (c *keepingCall) UnmarshalJSON(b []byte) error {
	type plain keepingCall
	return unmarshalKeeping(b, (*plain)(c), &c.Extra)
}

func (m *keepingReturns) UnmarshalJSON(b []byte) error {
	type plain keepingReturns
	return unmarshalKeeping(b, (*plain)(m), &m.Extra)
}

func (r *keepingReturn) UnmarshalJSON(b []byte) error {
	type plain keepingReturn
	return unmarshalKeeping(b, (*plain)(r), &r.Extra)
}

func unmarshalKeeping(data []byte, v any, extra *map[string]json.RawMessage) error {
	if err := json.Unmarshal(data, v); err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	forgetKnown(reflect.TypeOf(v).Elem(), all)
	*extra = all
	return nil
}

func forgetKnown(t reflect.Type, all map[string]json.RawMessage) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous {
			forgetKnown(f.Type, all)
		} else {
			delete(all, name)
		}
	}
}

func readKeeping(page []byte) (list []any, err error) {
	return list, eachKind(page, "message_type", func(kind string, raw json.RawMessage) error {
		var m any = new(keepingReturns)
		if MessageType(kind) == TypeToolCall {
			m = new(keepingCalls)
		}
		list = append(list, m)
		return json.Unmarshal(raw, m)
	})
}

// TestGateReadMessages checks that reading takes a tenth of the time of encoding/json.
func TestGateReadMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for some seconds: run without -short")
	}
	page := messagePage()
	if len(page) < 80_000 || len(page) > 110_000 {
		t.Fatalf("the page has %d bytes, want some 90 KB", len(page))
	}
	if allocs := testing.AllocsPerRun(20, func() { _, _ = ReadList[Message](page) }); allocs > 40 {
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
	ours := best(func() error { _, err := ReadList[Message](string(body)); return err })
	before := best(func() error { _, err := readKeeping(bytes.Clone(body)); return err })
	ratio := before.Seconds() / ours.Seconds()
	t.Logf("%v, before %v: %.1f times as fast", ours, before, ratio)
	if ratio < 10 && !raceEnabled {
		t.Errorf("%.1f times as fast as encoding/json, want ≥ 10", ratio)
	}
}

func BenchmarkReadMessages(b *testing.B) {
	page := []byte(messagePage())
	b.Run("scanner", func(b *testing.B) {
		b.SetBytes(int64(len(page)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ReadList[Message](string(page)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("before", func(b *testing.B) {
		b.SetBytes(int64(len(page)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := readKeeping(page); err != nil {
				b.Fatal(err)
			}
		}
	})
}
