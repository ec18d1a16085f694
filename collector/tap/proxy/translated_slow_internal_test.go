package proxy

import (
	"bufio"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestTranslatedWait checks the events that a client gets while it waits for a translated stream.
// Then the client must get the answer or an error in the same form.
func TestTranslatedWait(t *testing.T) {
	t.Parallel()
	const document = `{"choices":[{"message":{"content":"a"},"finish_reason":"stop","token_ids":[1,2]}],"prompt_token_ids":[7,8],"usage":{"prompt_tokens":2,"completion_tokens":2}}`
	for _, a := range []struct{ path, body, waiting, answered, failed string }{
		{
			"/v1/responses", `{"model":"m","stream":true,"input":"a"}`,
			"response.created( response.in_progress)+", " response.output_item.added response.content_part.added response.output_text.delta( response.[a-z_.]+)* response.completed",
			" response.failed",
		},
		{
			"/v1/messages", `{"model":"m","stream":true,"max_tokens":1,"messages":[{"role":"user","content":"a"}]}`,
			"ping( ping)+", " message_start content_block_start content_block_delta content_block_stop message_delta message_stop", " error",
		},
	} {
		for _, status := range []int{200, 500} {
			slowly(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if r.Method == http.MethodGet {
					_, _ = io.WriteString(w, `{"data":[{"id":"m"}]}`)
					return
				}
				time.Sleep(10 * time.Second)
				w.WriteHeader(status)
				_, _ = io.WriteString(w, document)
			}, func(r *slowRig) {
				key := r.begin()
				conn := r.send("/r/"+string(key)+a.path, a.body, len(a.body))
				defer conn.Close()
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				text, err := io.ReadAll(res.Body)
				want := a.answered
				if status != 200 {
					want = a.failed
				}
				if (err != nil) != (status != 200) {
					t.Errorf("%s, status %d: the answer ends with the error %v", a.path, status, err)
				}
				var events []string
				for line := range strings.Lines(string(text)) {
					if name, ok := strings.CutPrefix(line, "event: "); ok {
						events = append(events, strings.TrimSpace(name))
					}
				}
				if got := strings.Join(events, " "); !regexp.MustCompile("^" + a.waiting + want + "$").MatchString(got) {
					t.Errorf("%s, status %d: the client got the events %s", a.path, status, got)
				}
				calls := r.end(key, time.Second).Calls
				if len(calls) != 1 || calls[0].Status != status || calls[0].Delivered != (status == 200) {
					t.Errorf("%s, status %d: recorded %+v", a.path, status, calls)
				}
			})
		}
	}
}
