package letta

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// The reference reads a trace with encoding/json. This package must accept and reject the same
// texts.
type referenceResponse struct {
	Text      loose[string]   `json:"text"`
	OutputIDs json.RawMessage `json:"output_ids"`
	MetaInfo  loose[struct {
		FinishReason loose[struct {
			Type    loose[string]   `json:"type"`
			Matched json.RawMessage `json:"matched"`
		}] `json:"finish_reason"`
		WeightVersion  json.RawMessage `json:"weight_version"`
		WeightVersions json.RawMessage `json:"weight_versions"`
		PromptTokens   json.RawMessage `json:"prompt_tokens"`
		Rollout        json.RawMessage `json:"rollout"`
		Logprobs       json.RawMessage `json:"output_token_logprobs"`
	}] `json:"meta_info"`
}

func (r *referenceResponse) plain() *TraceResponse {
	out := &TraceResponse{OutputIDs: kept(r.OutputIDs)}
	if r.Text.V != nil {
		out.Text = *r.Text.V
	}
	m := r.MetaInfo.V
	if m == nil {
		return out
	}
	out.Logprobs, out.PromptTokens, out.Versions = kept(m.Logprobs), kept(m.PromptTokens), kept(m.WeightVersions)
	out.Mark = kept(m.Rollout)
	if f := m.FinishReason.V; f != nil {
		if out.Matched = kept(f.Matched); f.Type.V != nil {
			out.Finish = *f.Type.V
		}
	}
	if json.Unmarshal(m.WeightVersion, &out.Version) != nil {
		out.Version = ""
		if number := json.Number(""); json.Unmarshal(m.WeightVersion, &number) == nil {
			out.Version = tokenize.VersionWord(string(number))
		}
	}
	return out
}

type referenceRequest struct {
	Messages json.RawMessage `json:"messages"`
	Tools    json.RawMessage `json:"tools"`
	InputIDs json.RawMessage `json:"input_ids"`
}

type referenceTraceMessage struct {
	Role       string           `json:"role"`
	Content    referenceContent `json:"content"`
	Name       string           `json:"name"`
	ToolCallID string           `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

func (m *referenceTraceMessage) plain() TraceMessage {
	out := TraceMessage{Role: m.Role, Content: string(m.Content), Name: m.Name, ToolCallID: m.ToolCallID}
	if m.ToolCalls != nil {
		out.ToolCalls = []TraceCall{}
	}
	for _, c := range m.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, TraceCall{c.ID, c.Function.Name, c.Function.Arguments})
	}
	return out
}

type referenceContent string

func (c *referenceContent) UnmarshalJSON(b []byte) error {
	var content oldContent
	err := content.UnmarshalJSON(b)
	var texts []string
	for _, p := range content.Parts {
		if p.Type == "text" {
			texts = append(texts, p.Text)
		}
	}
	*c = referenceContent(content.Text + strings.Join(texts, "\n"))
	return err
}

// referenceKind returns the text of the member that selects the kind of a union.
func referenceKind(raw json.RawMessage, tag string) (kind string, err error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return "", err
	}
	if all[tag] != nil {
		err = json.Unmarshal(all[tag], &kind)
	}
	return kind, err
}

func sameTrace(t *testing.T, text []byte) {
	t.Helper()
	trace := new(ProviderTrace)
	if json.Valid(text) {
		var err error
		whole := `{"request_json":` + string(text) + `,"response_json":` + string(text) + "}"
		if trace, err = Read[ProviderTrace](whole); err != nil || trace.JSON != kept([]byte(whole)) {
			t.Fatalf("Read: %v, kept %q", err, trace.JSON)
		}
		if want := RawJSON(validText(strings.TrimRight(strings.TrimLeft(string(text), " \t\r\n"), " \t\r\n"))); trace.RequestJSON != want || trace.ResponseJSON != want {
			t.Errorf("kept %q, want %q", trace.RequestJSON, want)
		}
	} else {
		whole := `{"request_json":` + string(text) + "}" // valid JSON if the text ends a member and begins another one
		if _, err := Read[ProviderTrace](whole); err == nil && !json.Valid([]byte(whole)) {
			t.Errorf("Read(%q) succeeded", whole)
		}
		return
	}

	var response referenceResponse
	wantErr := json.Unmarshal(text, &response)
	got, err := trace.Response()
	if (err != nil) != (wantErr != nil) {
		t.Errorf("Response(%.300q) = %v, encoding/json returned %v", text, err, wantErr)
	}
	if err == nil && wantErr == nil {
		if want := response.plain(); *got != *want {
			t.Errorf("Response(%.300q)\n = %+v\nwant %+v", text, got, want)
		}
		var ids []int32
		wantErr := error(nil)
		if got.OutputIDs != "" {
			wantErr = json.Unmarshal([]byte(got.OutputIDs), &ids)
		}
		gotIDs, err := got.AppendIDs(nil)
		if (err != nil) != (wantErr != nil) || err == nil && len(gotIDs)+len(ids) > 0 && !reflect.DeepEqual(gotIDs, ids) {
			t.Errorf("AppendIDs(%.300q) = %v, %v, want %v, %v", got.OutputIDs, gotIDs, err, ids, wantErr)
		}
	}

	var request referenceRequest
	wantErr = json.Unmarshal(text, &request)
	gotRequest, err := trace.Request()
	if (err != nil) != (wantErr != nil) {
		t.Errorf("Request(%.300q) = %v, encoding/json returned %v", text, err, wantErr)
	}
	if err != nil || wantErr != nil {
		return
	}
	if want := (&TraceRequest{kept(request.Messages), kept(request.Tools), kept(request.InputIDs)}); *gotRequest != *want {
		t.Errorf("Request(%.300q)\n = %+v\nwant %+v", text, gotRequest, want)
	}
	var messages []referenceTraceMessage
	if request.Messages != nil {
		wantErr = json.Unmarshal(request.Messages, &messages)
	}
	list, err := gotRequest.ReadMessages()
	if (err != nil) != (wantErr != nil) {
		t.Errorf("ReadMessages(%.300q) = %v, encoding/json returned %v", request.Messages, err, wantErr)
	}
	if err != nil || wantErr != nil {
		return
	}
	var want []TraceMessage
	for i := range messages {
		want = append(want, messages[i].plain())
	}
	if len(list)+len(want) > 0 && !reflect.DeepEqual(list, want) {
		t.Errorf("ReadMessages(%.300q)\n = %+v\nwant %+v", request.Messages, list, want)
	}
}

// kept returns the text of a value as this package keeps it: encoding/json leaves invalid UTF-8
// in a json.RawMessage.
func kept(raw json.RawMessage) RawJSON { return RawJSON(validText(string(raw))) }

// recordedLives returns all recordings.
func recordedLives(tb testing.TB) (all []*recordedLife) {
	tb.Helper()
	paths, err := filepath.Glob("../../testdata/letta/*.json.gz")
	if err != nil || len(paths) < 30 {
		tb.Fatalf("found %d recordings (%v)", len(paths), err)
	}
	for _, path := range paths {
		b, err := tokenizetest.Recording(path)
		life := new(recordedLife)
		if err := errors.Join(err, json.Unmarshal(b, life)); err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		all = append(all, life)
	}
	return all
}

type recordedLife struct {
	Agent        json.RawMessage   `json:"agent"`
	Conversation json.RawMessage   `json:"conversation"`
	Tools        []json.RawMessage `json:"tools"`
	Exchanges    []struct {
		Response struct {
			Status int             `json:"status"`
			Body   json.RawMessage `json:"body"`
		} `json:"response"`
		Runs []struct {
			Run      json.RawMessage   `json:"run"`
			Steps    []json.RawMessage `json:"steps"`
			Messages json.RawMessage   `json:"messages"`
			Traces   []json.RawMessage `json:"traces"`
		} `json:"runs"`
	} `json:"exchanges"`
}

func recordedTraces(tb testing.TB) (all []json.RawMessage) {
	tb.Helper()
	for _, life := range recordedLives(tb) {
		for _, e := range life.Exchanges {
			for _, run := range e.Runs {
				for _, trace := range run.Traces {
					var t struct {
						Request  json.RawMessage `json:"request_json"`
						Response json.RawMessage `json:"response_json"`
					}
					if err := json.Unmarshal(trace, &t); err != nil {
						tb.Fatal(err)
					}
					all = append(all, t.Request, t.Response)
				}
			}
		}
	}
	return all
}

// mutated changes a JSON text in one place. The result can be invalid JSON.
func mutated(r *rand.Rand, text []byte) []byte {
	if len(text) == 0 {
		return text
	}
	// A place near a quote is more interesting than one within a long text.
	at := r.IntN(len(text))
	if r.IntN(3) > 0 {
		if i := strings.IndexByte(string(text[at:]), '"'); i >= 0 {
			at += i
		}
	}
	put := func(from, to int, with string) []byte {
		return append(append(append([]byte(nil), text[:from]...), with...), text[to:]...)
	}
	switch r.IntN(8) {
	case 0: // replace a value
		values := []string{"null", "true", "0", "-1.5e3", `""`, "[]", "{}", "1e999", "9223372036854775808", `"\ud800"`, "[[null]]", `{"type":"text"}`}
		if i := strings.IndexByte(string(text[at:]), ':'); i >= 0 {
			from := at + i + 1
			if raw := valueAt(text[from:]); raw > 0 {
				return put(from, from+raw, values[r.IntN(len(values))])
			}
		}
	case 1: // duplicate a member
		if i := strings.IndexAny(string(text[at:]), "{,"); i >= 0 {
			from := at + i + 1
			if raw := valueAt(text[from:]); raw > 0 && from+raw < len(text) && text[from+raw] == ':' {
				value := valueAt(text[from+raw+1:])
				member := string(text[from : from+raw+1+value])
				if r.IntN(2) == 0 {
					member = string(text[from:from+raw]) + ":null"
				}
				return put(from, from, member+",")
			}
		}
	case 2: // change the case of a letter
		if c := text[at]; c >= 'a' && c <= 'z' {
			return put(at, at+1, string(rune(c-32)))
		}
		return put(at, min(at+2, len(text)), "\"S")
	case 3: // insert invalid UTF-8 or a rune
		return put(at, at, []string{"\xff", "\xc3", "\xed\xa0\x80", "é"}[r.IntN(4)])
	case 4: // insert an escape
		return put(at, at, []string{`\u0041`, `\ud83d\ude00`, `\ude00`, `\x`, `\"`, `\n`, "\n", `\ud83d\u0041`}[r.IntN(8)])
	case 5: // truncate
		return text[:at]
	case 6: // delete some bytes
		return put(at, min(len(text), at+1+r.IntN(8)), "")
	}
	return put(at, at+1, string(rune(32+r.IntN(95))))
}

// valueAt returns the length of the value at the start of text, or 0.
func valueAt(text []byte) int {
	d := json.NewDecoder(strings.NewReader(string(text)))
	var raw json.RawMessage
	if d.Decode(&raw) != nil {
		return 0
	}
	return int(d.InputOffset())
}

func TestTraceAsBefore(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	texts := recordedTraces(t)
	for _, text := range texts {
		sameTrace(t, text)
	}
	for range 4_000 { // FuzzTrace has more
		text := texts[r.IntN(len(texts))]
		if len(text) > 20_000 && r.IntN(10) > 0 {
			continue
		}
		text = mutated(r, text)
		if r.IntN(2) == 0 {
			text = mutated(r, text)
		}
		if sameTrace(t, text); t.Failed() {
			return
		}
	}
}

// FuzzTrace compares with encoding/json.
func FuzzTrace(f *testing.F) {
	for _, text := range recordedTraces(f) {
		if len(text) < 8<<10 {
			f.Add([]byte(text))
		}
	}
	f.Add([]byte(`{"messages":[{"content":[{"text":"a","type":"text"},{"type":"x","type":"text","text":1}],"role":null}]}`))
	f.Add([]byte(`[],"":0`))
	f.Add([]byte(`{"meta_info":{"finish_reason":{"type":"stop","MATCHED":1}},"Output_Ids":[1,null]}`))
	f.Fuzz(func(t *testing.T, text []byte) { sameTrace(t, text) })
}
