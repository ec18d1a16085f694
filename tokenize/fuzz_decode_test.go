package tokenize_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// FuzzDecode checks that the result does not depend on the chunks and that errors are inside the
// input. Accepted input must decode as with encoding/json. Input rejected as not JSON must be
// invalid there too, except in the few cases where this decoder is stricter.
func FuzzDecode(f *testing.F) {
	for _, h := range hostile {
		if len(h.in) < 500 {
			f.Add([]byte(h.in))
		}
	}
	long := `"` + strings.Repeat(`text “x” \\\"y\\\"\n`, 4) + `"`
	f.Add([]byte(`{"a":[` + long + `,` + long + `]}`))
	for seed, o := range []tokenizetest.Options{
		{Tokens: 12, Turns: 3, Logprobs: true},
		{Tokens: 12, Turns: 3, InputIDs: true, PromptTokens: 5, Spaces: true, TokenStrings: true, Logprobs: true},
	} {
		f.Add(tokenizetest.Reply(uint64(seed), o))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeEveryWay(t, tokenize.DecoderConfig{}, b)
		if err == nil {
			want, err := plainReply(b)
			if err != nil {
				if foldedKey(b) {
					return
				}
				t.Fatalf("accepted, but encoding/json returned %v", err)
			}
			if got != want && !foldedKey(b) {
				t.Fatalf("differs from encoding/json\n got %s\nwant %s", got, want)
			}
			return
		}
		var e *tokenize.DecodeError
		if !errors.As(err, &e) {
			t.Fatalf("error %v is not a DecodeError", err)
		}
		if e.Offset < 0 || e.Offset > int64(len(b)) {
			t.Fatalf("offset %d outside of %d bytes", e.Offset, len(b))
		}
		if errors.Is(err, tokenize.ErrSyntax) && json.Valid(b) {
			t.Fatalf("refused as not JSON: %v", err)
		}
	})
}

// foldedKey reports whether encoding/json might have matched a key with another spelling, or seen a
// key twice in an object that the decoder copies or skips. The two decoders then differ by design.
func foldedKey(b []byte) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(b, &members) != nil {
		return true
	}
	var turns []map[string]json.RawMessage
	if json.Unmarshal(members["turns"], &turns) != nil {
		return members["turns"] != nil
	}
	for _, turn := range turns {
		for key := range turn {
			switch key {
			case "role", "input_ids", "output_ids", "output_token_logprobs", "content", "tool_name":
			default:
				return true
			}
		}
	}
	return false
}
