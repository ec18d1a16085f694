package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// Servers that violate the protocol. Each one answers one kind of request badly, and all others
// like Letta.

// Requests that are answered badly.
const (
	onHealth   = "GET /v1/health"
	onModels   = "GET /v1/models"
	onCreate   = "POST /v1/agents"
	onSend     = "POST messages"
	onEvidence = "GET steps and messages"
	onDelete   = "DELETE agent"
)

// asks reports whether a request is of the kind on.
func asks(r *http.Request, on string) bool {
	path := strings.TrimRight(r.URL.Path, "/")
	switch on {
	case onHealth:
		return path == "/v1/health"
	case onModels:
		return path == "/v1/models"
	case onCreate:
		return r.Method == http.MethodPost && path == "/v1/agents"
	case onSend:
		return r.Method == http.MethodPost && strings.HasSuffix(path, "/messages")
	case onEvidence:
		return r.Method == http.MethodGet && (strings.HasPrefix(path, "/v1/runs") || strings.HasPrefix(path, "/v1/steps"))
	case onDelete:
		return r.Method == http.MethodDelete
	}
	return false
}

type badServer struct {
	name  string
	on    []string
	serve func(w http.ResponseWriter, r *http.Request)
	want  []int // exit codes; nil: any failure
}

// Bad servers write without end, or hold a connection, for these times. The client must give up
// before. A call that changes nothing can take 2 minutes.
const (
	patience  = 40 * time.Second
	callLimit = 2 * time.Minute
	stillness = callLimit + 30*time.Second
)

// endless writes begin, and then piece repeatedly until the client disconnects.
func endless(begin, piece string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, begin)
		block := []byte(strings.Repeat(piece, 1+(64<<10)/len(piece)))
		for end := time.Now().Add(patience); time.Now().Before(end); {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
}

func text(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func rawBytes(parts ...string) http.HandlerFunc {
	return onConn(func(conn net.Conn) {
		for _, p := range parts {
			if _, err := io.WriteString(conn, p); err != nil {
				return
			}
		}
	})
}

func onConn(do func(conn net.Conn)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(stillness))
		do(conn)
	}
}

// drip writes one byte of piece at a time.
func drip(head, piece string, every time.Duration) http.HandlerFunc {
	return onConn(func(conn net.Conn) {
		_, _ = io.WriteString(conn, head)
		for i := 0; ; i++ {
			if _, err := io.WriteString(conn, piece[i%len(piece):i%len(piece)+1]); err != nil {
				return
			}
			time.Sleep(every)
		}
	})
}

// pour writes head, and then block repeatedly.
func pour(head, block string) http.HandlerFunc {
	return onConn(func(conn net.Conn) {
		_, err := io.WriteString(conn, head)
		for err == nil {
			_, err = io.WriteString(conn, block)
		}
	})
}

// hold writes head, and then nothing.
func hold(head string) http.HandlerFunc {
	return onConn(func(conn net.Conn) {
		_, _ = io.WriteString(conn, head)
		_, _ = io.Copy(io.Discard, conn)
	})
}

const okHead = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

// aTurn is a turn of two tokens. reply returns an answer with turns.
const aTurn = `{"role":"assistant","content":"a","output_ids":[5,6],"output_token_logprobs":[[-0.1,5,null],[-0.2,6,null]]}`

func reply(turns, usage string) string {
	return `{"messages":[],"stop_reason":{"message_type":"stop_reason","stop_reason":"end_turn"},"usage":` + usage + `,"turns":[` + turns + `]}`
}

const usage = `{"message_type":"usage_statistics","completion_tokens":2,"prompt_tokens":3,"total_tokens":5,"step_count":1}`

func badServers() []badServer {
	all := []string{onHealth, onModels, onCreate, onSend}
	send, early := []string{onSend}, []string{onHealth, onModels, onCreate}
	var gz bytes.Buffer
	z := gzip.NewWriter(&gz)
	_, _ = z.Write(bytes.Repeat([]byte(" "), 64<<20))
	_ = z.Close()
	head := okHead + "Connection: close\r\n"
	return []badServer{
		{"body without end", all, endless("", "x"), nil},
		{"spaces without end", all, endless("", " "), nil},
		{"a text without end", all, endless(`{"status":"`, "x"), nil},
		{"a list without end", all, endless(`[`, `{"handle":"a/b"},`), nil},
		{"nested without end", all, endless("", `{"a":`), nil},
		{"lists in lists", all, endless("", "["), nil},
		{"turns without end", send, endless(`{"turns":[`+aTurn, ","+aTurn), nil},
		{"ids without end", send, endless(`{"turns":[{"role":"assistant","content":"","output_ids":[1`, ",12"), nil},
		{"logprobs without end", send, endless(`{"turns":[{"role":"assistant","content":"","output_ids":[1],"output_token_logprobs":[[-1,1,null]`, ",[-1,1,null]"), nil},
		{"keys without end", send, endless(`{"a":1`, `,"key":{"b":[1,2]}`), nil},
		{"messages without end", send, endless(`{"messages":[{}`, `,{"message_type":"assistant_message","content":"a"}`), nil},
		{"a number without end", send, endless(`{"usage":{"prompt_tokens":1`, "0"), nil},
		{"a failure without end", all, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			endless(`{"detail":"`, "x")(w, r)
		}, nil},
		{"a refusal of 100 MB", all, text(http.StatusBadRequest, `{"detail":"`+strings.Repeat("no ", 33<<20)+`"}`), nil},
		{"headers without end", all, pour("HTTP/1.1 200 OK\r\n", strings.Repeat("X-A: "+strings.Repeat("y", 1000)+"\r\n", 64)), nil},
		{"one header without end", all, pour("HTTP/1.1 200 OK\r\nX-A: ", strings.Repeat("y", 64<<10)), nil},
		{"informational answers without end", all, pour("", "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"), nil},
		{"slow headers", all, drip("HTTP/1.1 200 OK\r\nX-A: ", "y", 200*time.Millisecond), nil},
		{"slow body", all, drip(head+"Content-Length: 100000\r\n\r\n", " ", 200*time.Millisecond), nil},
		{"silence", all, hold(""), nil},
		{"silence after the headers", all, hold(head + "Content-Length: 100\r\n\r\n{"), nil},
		{"a length of exabytes", all, rawBytes(head+"Content-Length: 9223372036854775807\r\n\r\n", "{"), nil},
		{"a negative length", all, rawBytes(head+"Content-Length: -5\r\n\r\n", "{}"), nil},
		{"two lengths", all, rawBytes(head+"Content-Length: 2\r\nContent-Length: 3\r\n\r\n", "{}"), nil},
		{"a length too short", all, rawBytes(head+"Content-Length: 5\r\n\r\n", reply(aTurn, usage)), nil},
		{"a length too long", all, rawBytes(head+"Content-Length: 50000\r\n\r\n", reply(aTurn, usage)), nil},
		{"chunks of garbage", all, rawBytes(head+"Transfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\nzzz\r\n\x00\xff"), nil},
		{"a chunk of exabytes", all, rawBytes(head+"Transfer-Encoding: chunked\r\n\r\n", "7fffffffffffffff\r\n{"), nil},
		{"chunk extensions without end", all, pour(head+"Transfer-Encoding: chunked\r\n\r\n1;", strings.Repeat("y", 64<<10)), nil},
		{"early close", all, rawBytes(""), nil},
		{"close in the middle", all, rawBytes(head+"\r\n", `{"messages":[`), nil},
		{"TLS on a plain port", all, rawBytes("\x15\x03\x01\x00\x02\x02\x28"), nil},
		{"not HTTP", all, rawBytes("SSH-2.0-OpenSSH_9.6\r\n"), nil},
		{"HTTP/1.0 without a length", all, rawBytes("HTTP/1.0 200 OK\r\n\r\n", "[]"), nil},
		{"redirects in a circle", all, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }, nil},
		{"a redirect of 1 MB", all, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://example.invalid/"+strings.Repeat("a", 900<<10))
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, nil},
		{"a page", all, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<!doctype html><html><body>Welcome to nginx!</body></html>")
		}, nil},
		{"compressed", all, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(gz.Bytes())
		}, nil},
		{"nothing", all, text(200, ""), nil},
		{"null", all, text(200, "null"), nil},
		{"a number", all, text(200, "-1e999"), nil},
		{"NUL bytes", all, text(200, strings.Repeat("\x00", 4096)), nil},
		{"no UTF-8", all, text(200, "{\"status\":\"\xff\xfe\",\"version\":\"\xc3\x28\"}"), nil},
		{"204", all, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, nil},
		{"999", all, rawBytes("HTTP/1.1 999 No\r\nContent-Length: 0\r\n\r\n"), nil},
		{"busy for a century", early, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3153600000")
			w.WriteHeader(http.StatusServiceUnavailable)
		}, nil},
		{"200,000 models", []string{onModels}, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("["))
			block := []byte(strings.Repeat(`{"handle":"openai/model","name":"model","model":"model","model_endpoint_type":"openai","context_window":8192,"description":"`+strings.Repeat("d", 200)+`"},`, 1000))
			for range 200 {
				_, _ = w.Write(block)
			}
			_, _ = io.WriteString(w, `{"handle":"`+simModel+`","name":"q","model":"q","model_endpoint_type":"sglang","context_window":8192}]`)
		}, []int{exit.OK}},
		{"duplicate keys", send, text(200, `{"turns":[`+aTurn+`],`+reply(aTurn, usage)[1:]), nil},
		{"negative counts", send, text(200, reply(aTurn, `{"completion_tokens":-2,"prompt_tokens":-3,"step_count":-1}`)), nil},
		{"counts that contradict", send, text(200, reply(aTurn, `{"completion_tokens":2000000000,"prompt_tokens":9007199254740993,"step_count":77}`)), nil},
		{"counts beyond numbers", send, text(200, reply(aTurn, `{"completion_tokens":1e300,"prompt_tokens":99999999999999999999999,"step_count":0.5}`)), nil},
		{"a million turns", send, text(200, reply(strings.Repeat(aTurn+",", 300_000)+aTurn, usage)), nil},
		{"a text of 60 MB", send, text(200, reply(strings.Replace(aTurn, `"a"`, `"`+strings.Repeat("a", 60<<20)+`"`, 1), usage)), nil},
		{"ids that are none", send, text(200, reply(strings.Replace(aTurn, "[5,6]", `[-5,1e9,"6",null,{}]`, 1), usage)), nil},
		{"evidence without end", []string{onEvidence}, endless("[", `{"id":"step-1","messages":[]},`), nil},
		{"evidence in pages without end", []string{onEvidence}, text(200, `[`+strings.TrimSuffix(strings.Repeat(`{"id":"step-1","run_id":"run-1"},`, 1000), ",")+`]`), nil},
		{"deletions that fail slowly", []string{onDelete}, func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Second)
			w.WriteHeader(http.StatusInternalServerError)
		}, []int{exit.OK, exit.Unusable}},
		{"silence", []string{onDelete}, hold(""), []int{exit.OK}},
	}
}

// hostileConfig has one verb, for the limit of a send. A sample that fails at the limit is right,
// unless it must be data.
const hostileConfig = `
server: {connect_timeout: 1s, idle_timeout: 1s, timeout: %[1]s, stuck_after: 1s}
run: {retries: 0, attempt_timeout: %[1]s, fail_on_error: 100%%, busy_patience: 1s}
`

// Against every bad server, the program ends with a message and the right exit code, in bounded
// time and memory, without a panic. HOSTILE=all runs each one on all its requests; otherwise each
// runs on one.
func TestGateHostileServers(t *testing.T) {
	if raceEnabled || runtime.GOOS != "linux" {
		t.Skip("reads the memory of a process, as Linux gives it, without the race detector")
	}
	sim := newSim(t, lettasim.Config{InputIDs: true, Script: killScript()})
	tasks := writeFile(t, "tasks.jsonl", sim.Tasks(lettasim.TaskOptions{Scripted: 6}))
	short := writeFile(t, "short.yaml", fmt.Appendf(nil, hostileConfig, "2s"))
	long := writeFile(t, "long.yaml", fmt.Appendf(nil, hostileConfig, "1m"))
	servers := badServers()
	full := os.Getenv("HOSTILE") == "all"
	for i, bad := range servers {
		on := bad.on
		if !full {
			on = on[i%len(on):][:1]
			if waits := strings.Contains(bad.name, "silence") || strings.Contains(bad.name, "slow"); waits && len(bad.on) > 1 {
				on = []string{onSend} // its time limit can be set
			}
		}
		for _, on := range on {
			t.Run(bad.name+" on "+on, func(t *testing.T) {
				t.Parallel()
				var asked atomic.Int64
				url := serveHandler(t, sim, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					// Requests before the run begins succeed, so that the run reaches the bad
					// answer.
					if asks(r, on) && (on != onDelete && (on != onSend || !full) || asked.Add(1) > 1) {
						bad.serve(w, r)
						return
					}
					sim.ServeHTTP(w, r)
				}))
				dir := filepath.Join(t.TempDir(), "run")
				args := []string{"collect", "--server", url, "--model", simModel, "--out", dir, "--tasks", tasks, "--max-in-flight", "6", "-c", short}
				if on == onSend && !full { // a run whose trial call was answered waits two minutes for its server
					args = append([]string{args[0], "--preflight", "connect"}, args[1:]...)
				}
				if bad.want != nil { // every sample must be data, even if the machine is slow
					args[len(args)-1] = long
				}
				began := time.Now()
				p := startProgram(t, "rollout", nil, args...)
				most, waits := 60*time.Second, strings.Contains(bad.name, "silence") || strings.HasPrefix(bad.name, "slow")
				if waits && slices.Contains([]string{onHealth, onModels, onCreate}, on) {
					most += callLimit // the server never answered, so it can just be slow
				}
				if on == onSend && full {
					most += 2 * time.Minute // the trial call was answered, so the run waits for the server
				}
				timer := time.AfterFunc(most+30*time.Second, func() { _ = p.cmd.Process.Signal(syscall.SIGQUIT) })
				peak := peakOf(p.cmd.Process.Pid)
				<-p.ended
				timer.Stop()
				memory := peak() >> 20
				took, code, said := time.Since(began), p.code, p.said()
				t.Logf("exit code %d, %d MB, %v: %.200s", code, memory, took.Round(100*time.Millisecond), said[strings.LastIndex(strings.TrimSpace(said), "\n")+1:])
				switch {
				case strings.Contains(said, "goroutine ") || strings.Contains(said, "panic"):
					t.Errorf("it panicked, or hung:\n%.4000s", said)
				case bad.want != nil && !slices.Contains(bad.want, code):
					t.Errorf("exit code %d, want %v\n%.2000s", code, bad.want, said)
				case bad.want == nil && !slices.Contains([]int{exit.Failures, exit.Tolerance, exit.Unusable}, code) && !readsWell(on, bad.name, code):
					t.Errorf("exit code %d\n%.2000s", code, said)
				case code != exit.OK && strings.TrimSpace(said) == "":
					t.Error("it printed nothing")
				case strings.ContainsAny(said, "\x00\x1b") || len(said) > 20_000:
					t.Errorf("it printed %d bytes, or bytes that a terminal cannot show", len(said))
				}
				if on == onSend && strings.HasSuffix(bad.name, "without end") && runfolder.Exists(dir) {
					for id, f := range readDataset(t, dir).allFailures() {
						if f.Error == "" || strings.Contains(f.Error, "\n") || len(f.OutputIDs) > 0 {
							t.Errorf("%v: class %s, %d tokens, error %q; want one line", id, f.Class, len(f.OutputIDs), f.Error)
						}
					}
				}
				if memory > 256 || memory == 0 && took > time.Second { // a short process can end before it is measured
					t.Errorf("it took %d MB", memory)
				}
				if took > most {
					t.Errorf("it took %v", took)
				}
			})
		}
	}
}

// peakOf measures the peak resident memory of a process until the returned function is called. The
// resource usage of the process would include the memory of its parent.
func peakOf(pid int) func() int64 {
	var most atomic.Int64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			if _, rest, ok := strings.Cut(string(b), "VmHWM:"); ok && strings.Contains(string(b), "Name:\trollout") {
				var kib int64
				if _, err := fmt.Sscan(rest, &kib); err == nil {
					most.Store(max(most.Load(), kib<<10))
				}
			}
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	return func() int64 {
		close(done)
		<-ended
		return most.Load()
	}
}

// readsWell reports whether a strange answer is acceptable, with exit code 0.
func readsWell(on, name string, code int) bool {
	// JSON that ends early is an error; a short health answer is not.
	health := []string{"a length too short", "no UTF-8", "null", "nothing", "a list without end", "HTTP/1.0 without a length"}
	if slices.Contains(health, name) {
		return code == exit.OK && on == onHealth
	}
	return code == exit.OK && on == onEvidence // not needed if the prompts came with the answer
}
