package letta

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// TestTraceBodies checks that a body that does not have the form of a request or an answer is kept,
// with the reason.
func TestTraceBodies(t *testing.T) {
	t.Parallel()
	const text = `{"request_json": {"messages":[]} ,"response_json":[1, 2],"call_type":5}`
	trace, err := Read[ProviderTrace](text)
	if err != nil || trace.JSON != text || trace.Request.JSON != `{"messages":[]}` || trace.Response.JSON != "[1, 2]" {
		t.Fatalf("Read = %+v, %v, want both texts", trace, err)
	}
	if request, err := trace.Request.Parsed(); err != nil || request.Messages != "[]" {
		t.Errorf("request = %+v, %v", request, err)
	}
	if _, err := trace.Response.Parsed(); err == nil || err.Error() != "a list where an object is expected (byte 0)" {
		t.Errorf("response: %v, want the reason", err)
	}
}

// TestAppendIDs checks that ids are appended, or nothing.
func TestAppendIDs(t *testing.T) {
	t.Parallel()
	for text, want := range map[RawJSON][]int32{"": {9}, "null": {9}, "[]": {9}, "[1, 2147483647]": {9, 1, 1<<31 - 1}, "[1,2147483648]": nil, "[1.0]": nil, "[null]": nil, "{}": nil, "[1": nil} {
		got, err := (&TraceResponse{OutputIDs: text}).AppendIDs([]int32{9})
		if failed := want == nil; failed != (err != nil) || !failed && !slices.Equal(got, want) || failed && len(got) != 1 {
			t.Errorf("AppendIDs(%s) = %v, %v, want %v", text, got, err, want)
		}
	}
}

// TestSpans checks that there are no spans without a list, and an empty list if it is malformed.
func TestSpans(t *testing.T) {
	t.Parallel()
	one := []tokenize.VersionSpan{{Version: "7", Start: 0, End: 2}}
	for text, want := range map[RawJSON][]tokenize.VersionSpan{
		"": nil, "null": nil, "[]": {}, `[{"version":7,"start":0,"end":2}]`: one, `[{"version":"7","start":0,"end":2,"x":null}]`: one,
		"[{}]": {{Start: -1, End: -1}}, "[null]": {}, `[{"version":null,"start":0,"end":2}]`: {{Start: 0, End: 2}},
		`[{"version":7,"start":null,"end":2}]`: {}, `[{"version":7,"start":0,"end":null}]`: {}, "{}": {}, "[1": {},
	} {
		if got := (&TraceResponse{Versions: text}).Spans(); !reflect.DeepEqual(got, want) {
			t.Errorf("Spans(%s) = %#v, want %#v", text, got, want)
		}
	}
}

// sameTrace compares both bodies of a trace with what Read makes of the same text alone.
func sameTrace(t *testing.T, text string) {
	t.Helper()
	whole := `{"request_json":` + text + `,"response_json":` + text + "}"
	trace, err := Read[ProviderTrace](whole)
	if valid := json.Valid([]byte(whole)); valid != (err == nil) {
		t.Errorf("Read(%.600q): %v; valid: %v", whole, err, valid)
	}
	if err != nil || !json.Valid([]byte(text)) { // a valid whole: the text ends one member and begins another
		return
	}
	text = strings.Trim(text, " \t\r\n")
	sameBody(t, &trace.Request, text)
	sameBody(t, &trace.Response, text)
}

func sameBody[T comparable](t *testing.T, got *TraceBody[T], text string) {
	t.Helper()
	if want := kept(json.RawMessage(text)); got.JSON != want {
		t.Errorf("kept %.600q, want %.600q", got.JSON, want)
	}
	value, err := got.Parsed()
	want, wantErr := Read[T](text)
	switch {
	case (err != nil) != (wantErr != nil), err != nil && err.Error() != wantErr.Error():
		t.Errorf("body %.600q: %v, want %v", text, err, wantErr)
	case err == nil && *value != *want:
		t.Errorf("body %.600q\n = %+v\nwant %+v", text, value, want)
	}
}

// tracesOf returns the recorded bodies of traces, and texts that they lack.
func tracesOf(tb testing.TB) (all []json.RawMessage) {
	tb.Helper()
	for i, texts := range recordedOf(tb) {
		if name := kindsOfText[i].name; name == "request" || name == "response" {
			all = append(all, texts...)
		}
	}
	for _, text := range []string{`[],"":0`, `{"output_ids":[1,null]}`, "null", "5", ` {"text" : 1} `, `{"request_json":1}`, "{}}", ""} {
		all = append(all, json.RawMessage(text))
	}
	return all
}

// TestTraceMutated wraps mutations of recorded bodies. FuzzTrace has more.
func TestTraceMutated(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	all := tracesOf(t)
	for _, text := range all {
		sameTrace(t, string(text))
	}
	for range 3_000 {
		text := []byte(all[r.IntN(len(all))])
		if len(text) > 20_000 && r.IntN(10) > 0 {
			continue
		}
		for range 1 + r.IntN(2) {
			text = mutated(r, text)
		}
		if sameTrace(t, string(text)); t.Failed() {
			return
		}
	}
}

// FuzzTrace compares the bodies of a trace with the same text alone.
func FuzzTrace(f *testing.F) {
	for _, text := range tracesOf(f) {
		if len(text) < 4<<10 {
			f.Add(string(text))
		}
	}
	f.Fuzz(sameTrace)
}

// kept returns the text of a value as this package keeps it: encoding/json leaves invalid UTF-8
// in a json.RawMessage.
func kept(raw json.RawMessage) RawJSON { return RawJSON(validText(string(raw))) }

// recordedLives returns all recordings.
func recordedLives(tb testing.TB) (all []*lettasim.Recording) {
	tb.Helper()
	paths, err := filepath.Glob("../../testdata/letta/*.json.gz")
	if err != nil || len(paths) < 30 {
		tb.Fatalf("found %d recordings (%v)", len(paths), err)
	}
	for _, path := range paths {
		b, err := tokenizetest.Recording(path)
		life := new(lettasim.Recording)
		if err := errors.Join(err, json.Unmarshal(b, life)); err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		all = append(all, life)
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
