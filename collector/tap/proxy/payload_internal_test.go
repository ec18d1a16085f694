package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/rollout-rl/rollout/tokenize"
)

// sent reads a payload in three ways, and checks its length.
func sent(t *testing.T, b *payload, chop int) []byte {
	t.Helper()
	text, err := io.ReadAll(b.send())
	if err != nil || int64(len(text)) != b.size() {
		t.Fatalf("%d bytes of %d, %v", len(text), b.size(), err)
	}
	single, err := io.ReadAll(iotest.OneByteReader(b.send()))
	if err != nil || !bytes.Equal(single, text) {
		t.Fatalf("byte by byte it is %s, not %s, %v", single, text, err)
	}
	var chopped []byte
	for s, p := b.send(), make([]byte, max(1, chop)); ; {
		n, err := s.Read(p)
		chopped = append(chopped, p[:n]...)
		if err == io.EOF {
			break
		}
	}
	if !bytes.Equal(chopped, text) {
		t.Fatalf("in pieces of %d it is %s, not %s", chop, chopped, text)
	}
	return text
}

// TestPayload proves that a held body is sent byte for byte, for any format of its ids, and that
// plain lists take a third of the memory.
func TestPayload(t *testing.T) {
	t.Parallel()
	var long strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&long, ",%d", (i*7919)%151_936)
	}
	for _, c := range []struct {
		list   string
		packed bool
	}{
		{`[5]`, true},
		{`[0,9,10,99,100,999,1000,9999,10000,99999,100000,999999,1000000,2147483647]`, true},
		{`[1, 2, 3]`, true},
		{`[1,2]`, true},
		{`[1` + long.String() + `]`, true},
		{strings.ReplaceAll(`[1`+long.String()+`]`, ",", ", "), true},
		{`[ 5]`, false},
		{`[5 ]`, false},
		{`[1,2, 3]`, false},
		{`[1, 2,3]`, false},
		{`[ 1,2]`, false},
		{`[1 ,2]`, false},
		{"[1,\n2]", false},
		{`[1,  2,3]`, false},
		{`[1,2,3  ]`, false},
	} {
		for _, format := range []string{`{"input_ids":%s}`, `{"a": "é", "input_ids": %s ,"sampling_params":{"top_p":0.9}} `} {
			text := fmt.Sprintf(format, c.list)
			q := &request{path: "/generate", body: []byte(text)}
			s := newScanner()
			s.ResetBytes(q.body)
			if err := (sglang{}).request(s, q); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			b := around(q.body, q.promptAt, nil)
			b.list = pack(q.body[q.promptAt.from:q.promptAt.to], q.prompt)
			clear(q.body) // another request reuses this memory
			if (b.list.raw == nil) != c.packed {
				t.Errorf("%.60s: packed %v", text, b.list.raw == nil)
			}
			if got := sent(t, b, 17); string(got) != text {
				t.Errorf("%.60s is sent as %.60s", text, got)
			}
			if n := b.list.ids.Bytes(); len(text) > 1000 && n > len(text)/2 {
				t.Errorf("%d bytes are held in %d", len(text), n)
			}
		}
	}
	if b := (&payload{front: []byte("{"), list: packed([]int32{7, 1_000_000_000, 42}), back: []byte("}")}); string(sent(t, b, 3)) != "{[7,1000000000,42]}" {
		t.Errorf("sent %s", sent(t, b, 3))
	}
}

// checkPayload checks that a payload sends the body, or the edited body.
func checkPayload(t *testing.T, d dialect, path string, body []byte, chop int) {
	t.Helper()
	set, err := ParseSet([]string{"top_p=1.0", "seed=7"})
	if err != nil {
		t.Fatal(err)
	}
	q := &request{path: path, body: slices.Clone(body)}
	s := tokenize.NewScanner(tokenize.DecoderConfig{})
	s.ResetBytes(q.body)
	if err := d.request(s, q); err != nil {
		t.Fatal(err)
	}
	want := edited(slices.Clone(body), slices.Clone(q.edits(&set, d.asks(q))))
	x := &exchange{p: &Proxy{cfg: Config{Set: set, AskIDs: true}.withDefaults(), limits: defaultLimits(), stats: counters{Stats: newStats()}}, d: d, call: newCall(d), parsed: true}
	desk := newDesk()
	x.understand(path, q.body, desk)
	desk.free()
	clear(q.body)
	if got := sent(t, x.body, chop); !bytes.Equal(got, want) {
		t.Fatalf("%s is sent as %s, want %s", body, got, want)
	}
}

// TestPayloadOwnsItsMemory proves that reuse of the parse buffer does not change a payload.
func TestPayloadOwnsItsMemory(t *testing.T) {
	t.Parallel()
	p := &Proxy{cfg: Config{}.withDefaults(), limits: defaultLimits(), stats: counters{Stats: newStats()}}
	bodies := []struct{ path, text string }{
		{"/generate", `{"input_ids":[%d,11],"sampling_params":{"temperature":%[1]d}}`},
		{"/generate", `{"input_ids":[%d, 11,12 ],"x":%[1]d}`},
		{chatPath, `{"messages":[{"role":"user","content":"number %d"}]}`},
		{completionPath, `{"prompt":"number %d"}`},
		{"/generate", `{"no JSON %d`},
	}
	type one struct {
		x    *exchange
		text string
	}
	var all []one
	for n := range 50 {
		for _, b := range bodies {
			text := fmt.Sprintf(b.text, 1000+n)
			x := &exchange{p: p}
			if !x.begin(dialectOf("POST", b.path), httptest.NewRequest("POST", b.path, strings.NewReader(text))) {
				t.Fatal("not begun")
			}
			all = append(all, one{x, text})
		}
	}
	for _, o := range all {
		if got := sent(t, o.x.body, 9); string(got) != o.text {
			t.Fatalf("%s is sent as %s", o.text, got)
		}
	}
}
