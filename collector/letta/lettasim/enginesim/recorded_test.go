package enginesim_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorded are the recorded calls of /generate, each with its place since the user's last
// message.
func recorded(t *testing.T) map[string][]recordedCall {
	t.Helper()
	names, err := os.ReadDir("../../../../testdata/letta")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]recordedCall{}
	for _, name := range names {
		f, err := os.Open(filepath.Join("../../../../testdata/letta", name.Name()))
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		var life struct {
			Exchanges []struct {
				Request struct {
					Body struct {
						Messages []struct{ Type string }
					}
				}
				Calls []recordedCall `json:"model_calls"`
			}
		}
		raw, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		if json.Unmarshal(bytes.ReplaceAll(raw, []byte("NaN"), []byte("null")), &life) != nil {
			continue // engine-request: no life
		}
		k := 0
		for _, x := range life.Exchanges {
			if m := x.Request.Body.Messages; len(m) == 0 || m[0].Type == "" || m[0].Type == "message" {
				k = 0
			}
			for _, c := range x.Calls {
				if c.Path != "/generate" {
					continue
				}
				c.step = k
				k++
				all[strings.TrimSuffix(name.Name(), ".json.gz")] = append(all[strings.TrimSuffix(name.Name(), ".json.gz")], c)
			}
		}
	}
	return all
}

type recordedCall struct {
	Path     string
	Status   int
	InputIDs []int32 `json:"input_ids"`
	Response json.RawMessage
	step     int
}

// shape is the names and kinds of an object's members in their order, nested ones too.
func shape(t *testing.T, raw []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	var out strings.Builder
	depth, lists := 0, 0
	for {
		token, err := d.Token()
		if err == io.EOF {
			return out.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token {
		case json.Delim('['):
			lists++
		case json.Delim(']'):
			lists--
		case json.Delim('{'):
			depth++
		case json.Delim('}'):
			depth--
		}
		if name, ok := token.(string); ok && lists == 0 {
			if name == "text" || depth > 1 || name == "meta_info" || name == "output_ids" {
				fmt.Fprintf(&out, "%d:%s ", depth, strings.Map(func(r rune) rune {
					if r >= '0' && r <= '9' {
						return -1
					}
					return r
				}, keep(name)))
			}
		}
	}
}

// keep drops what is a value and not a name: texts and ids are of this call.
func keep(name string) string {
	if len(name) == 32 || strings.ContainsAny(name, " <{\n") {
		return ""
	}
	return name
}

func newServer(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}
