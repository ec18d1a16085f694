package tokenize_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/tokenize"
	"github.com/rollout-rl/rollout/tokenize/tokenizetest"
)

// TestDecodeRecorded checks that every recorded reply decodes as it does with encoding/json.
func TestDecodeRecorded(t *testing.T) {
	t.Parallel()
	turns := 0
	for _, rec := range recordings(t) {
		for i, x := range rec.Exchanges {
			if len(x.Response.Body) == 0 || x.Response.Body[0] != '{' {
				continue
			}
			checkPlain(t, fmt.Sprintf("%s exchange %d", rec.name, i), x.Response.Body)
			turns++
		}
	}
	if turns < 40 {
		t.Errorf("only %d replies compared", turns)
	}
}

// TestDecodeSynthetic is TestDecodeRecorded for shapes that no recording has.
func TestDecodeSynthetic(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		o    tokenizetest.Options
	}{
		{"recorded", tokenizetest.Options{Tokens: 900, Turns: 7, Logprobs: true}},
		{"text", tokenizetest.Options{Tokens: 900, Turns: 7, Logprobs: true, Text: true}},
		{"input ids", tokenizetest.Options{Tokens: 500, Turns: 5, InputIDs: true}},
		{"spaces", tokenizetest.Options{Tokens: 500, Turns: 3, Logprobs: true, Spaces: true, InputIDs: true}},
		{"token strings", tokenizetest.Options{Tokens: 500, Turns: 4, TokenStrings: true}},
		{"no turns", tokenizetest.Options{}},
		{"no tokens", tokenizetest.Options{Turns: 3, Logprobs: true}},
		{"large", tokenizetest.Options{Tokens: 9000, Turns: 9, Logprobs: true, InputIDs: true}},
	}
	for i, tt := range tests {
		checkPlain(t, tt.name, tokenizetest.Reply(uint64(i), tt.o))
	}
}

// TestRestBoundIgnoresChunks checks that MaxRestBytes counts only bytes that are kept, wherever a
// chunk ends: here inside a key that is dropped.
func TestRestBoundIgnoresChunks(t *testing.T) {
	t.Parallel()
	const chunk = 4096
	kept := `{"p":"` + strings.Repeat("x", chunk-len(`{"p":"",`)-len(`"logpr`)) + `"`
	body := kept + `,"logprobs":null,"a":1}`
	if body[:chunk][len(kept):] != `,"logpr` {
		t.Fatalf("the first chunk ends with %q", body[:chunk][len(kept):])
	}
	for _, tt := range []struct {
		max int
		err error
	}{
		{len(kept + `,"a":1`), nil},
		{len(kept+`,"a":1`) - 1, tokenize.ErrTooLarge},
	} {
		d := tokenize.NewDecoder(tokenize.DecoderConfig{MaxRestBytes: tt.max, ChunkBytes: chunk})
		var r tokenize.Reply
		if err := d.DecodeBytes([]byte(body), &r); !errors.Is(err, tt.err) {
			t.Errorf("max %d: DecodeBytes() = %v, want %v", tt.max, err, tt.err)
		}
		if err := d.Decode(strings.NewReader(body), &r); !errors.Is(err, tt.err) {
			t.Errorf("max %d: Decode() = %v, want %v", tt.max, err, tt.err)
		}
	}
}

// TestDecodeUnneeded checks that a tool name or prompt of another type is not an error.
func TestDecodeUnneeded(t *testing.T) {
	t.Parallel()
	for _, value := range tokenizetest.OtherTypes {
		name := value
		if value[0] == '"' {
			name = "null"
		}
		prompt := value
		if value[0] == '[' {
			prompt = "{}"
		}
		text := `{"turns":[{"role":"assistant","input_ids":` + prompt + `,"output_ids":[5],"output_token_logprobs":[[-1,5,` + value + `]],"tool_name":` + name + `,"more":` + value + `}]}`
		if turn := mustDecode(t, []byte(text)).Turns[0]; turn.PromptIDs != nil || turn.ToolName != "" || len(turn.OutputIDs) != 1 || turn.Logprobs[0] != -1 {
			t.Errorf("%s: %+v", text, turn)
		}
	}
}

// TestDecodeRepeatedPrompts checks prompts that begin like the one before them, up to any byte.
func TestDecodeRepeatedPrompts(t *testing.T) {
	t.Parallel()
	gaps := []string{" ", strings.Repeat(" ", 5000)}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		body, prompt := []byte(`{"turns":[`), []byte("[")
		for range 12 {
			for range r.IntN(600) {
				gap := ""
				if k := r.IntN(400); k < len(gaps) && seed%2 == 1 {
					gap = gaps[k]
				}
				prompt = fmt.Appendf(prompt, "%d%s,%s", r.IntN(1<<r.IntN(31)), gap, gap)
			}
			prompt = fmt.Appendf(prompt, "%d]", r.IntN(1<<18))
			body = fmt.Appendf(body, `{"role":"assistant","input_ids":%s,"output_ids":[7, 8]},`, prompt)
			if r.IntN(4) == 0 {
				body = append(body, `{"role":"tool","input_ids":[]},{"role":"assistant","input_ids":null},`...)
			}
			same := len(prompt) - 1
			if r.IntN(2) == 0 {
				same = 1 + r.IntN(same)
			}
			prompt = bytes.TrimRight(prompt[:same], ", ")
			if len(prompt) > 1 {
				prompt = append(prompt, ',')
			}
		}
		checkPlain(t, fmt.Sprintf("seed %d", seed), append(bytes.TrimSuffix(body, []byte(",")), "]}"...))
	}
}
