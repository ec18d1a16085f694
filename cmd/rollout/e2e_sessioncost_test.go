package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta/lettasim/enginesim"
	"github.com/rollout-rl/rollout/tokenize/bpe/bpetest"
)

// benchTap starts a tap with sessions as a process, and returns its number and the URLs of the tap
// and of the engine.
func benchTap(b *testing.B) (pid int, tap, engine string) {
	b.Helper()
	if runtime.GOOS != "linux" {
		b.Skip("reads /proc: Linux only")
	}
	cfg := enginesim.Config{Model: "scripted", MaxModelLen: 1 << 18}
	var err error
	if _, cfg.Template, err = enginesim.SmallModel(); err != nil {
		b.Fatal(err)
	}
	cfg.Tokenizer = bpetest.Tokenizer(b, "qwen3") // so that a call has as many tokens as in real use
	e, err := enginesim.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	s := httptest.NewServer(e)
	b.Cleanup(s.Close)
	server := s.URL
	dir := b.TempDir()
	ready := filepath.Join(dir, "ready")
	cmd := exec.CommandContext(b.Context(), "rollout", "tap", "--sessions", "--engine", server, "--listen", "127.0.0.1:0", "--spool", filepath.Join(dir, "spool"), "--ready-file", ready)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if text, err := os.ReadFile(ready); err == nil {
			return cmd.Process.Pid, strings.TrimSpace(string(text)), server
		}
		if time.Since(began) > time.Minute {
			b.Fatal("the tap does not start")
		}
	}
}

// cpuOf returns the CPU time of a process.
func cpuOf(pid int) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := bytes.Cut(text, []byte(") "))
	fields := strings.Fields(string(rest))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond // a tick is 10 ms on Linux
}

// postBody sends a request and returns its answer, and the time until the first byte of the body.
func postBody(b *testing.B, url string, body []byte) (answer []byte, first time.Duration) {
	b.Helper()
	began := time.Now()
	resp, err := http.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	head := make([]byte, 1)
	if _, err := io.ReadFull(resp.Body, head); err != nil {
		b.Fatal(err)
	}
	first = time.Since(began)
	rest, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		b.Fatalf("status %d, %v: %.300s", resp.StatusCode, err, append(head, rest...))
	}
	return append(head, rest...), first
}

func beginSession(b *testing.B, tap string) (url string) {
	b.Helper()
	text, _ := postBody(b, tap+"/r", []byte("{}"))
	var begun struct{ Key string }
	if err := json.Unmarshal(text, &begun); err != nil {
		b.Fatal(err)
	}
	return tap + "/r/" + begun.Key
}

// apis contains the path and a request template for each API of a session.
var apis = []struct{ name, path, form string }{
	{"chat", "/v1/chat/completions", `{"model":"policy","stream":%t,"messages":%s}`},
	{"responses", "/v1/responses", `{"model":"policy","stream":%t,"input":%s}`},
	{"messages", "/v1/messages", `{"model":"policy","max_tokens":32000,"stream":%t,"messages":%s}`},
}

// apiBody returns a request in the given form, with 21 messages and a total size of about size bytes.
// The marker is in the last message.
func apiBody(form string, size int, stream bool, marker string) []byte {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", max(1, size/45/20))
	messages := []byte("[")
	for range 10 {
		messages = fmt.Appendf(messages, `{"role":"user","content":%q},{"role":"assistant","content":%q},`, text, text)
	}
	return fmt.Appendf(nil, form, stream, fmt.Appendf(messages, `{"role":"user","content":"Hi. %s"}]`, marker))
}

// engineAnswer returns the engine's answer to the request that the tap makes of body, and the number of
// its tokens.
func engineAnswer(b *testing.B, engine string, body []byte) (answer []byte, tokens int) {
	b.Helper()
	asked := strings.Replace(strings.Replace(string(body), "policy", "scripted", 1), "{", `{"logprobs":true,"return_token_ids":true,`, 1)
	answer, _ = postBody(b, engine+"/v1/chat/completions", []byte(asked))
	var got struct {
		Usage struct {
			Total int `json:"total_tokens"`
		}
	}
	if err := json.Unmarshal(answer, &got); err != nil || got.Usage.Total == 0 {
		b.Fatalf("%v: %.300s", err, answer)
	}
	return answer, got.Usage.Total
}

// BenchmarkSessionTap measures a process of rollout tap --sessions. For each API, it measures the CPU time
// per call with eight clients per core, and the memory per open session with 20,000 tokens. It also
// measures the time that the tap adds to the first byte of a stream of chat completions. Use -benchtime
// 1000x for 1,000 open sessions.
func BenchmarkSessionTap(b *testing.B) {
	const marker = "[script:length]"
	chat := apis[0]
	for _, api := range apis {
		for _, size := range []int{1, 40} {
			b.Run(fmt.Sprintf("cpu/api=%s/body=%dKB", api.name, size), func(b *testing.B) {
				pid, tap, engine := benchTap(b)
				url, body := beginSession(b, tap)+api.path, apiBody(api.form, size<<10, false, marker)
				answer, tokens := engineAnswer(b, engine, apiBody(chat.form, size<<10, false, marker))
				postBody(b, url, body)
				began := cpuOf(pid)
				b.SetParallelism(8)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						postBody(b, url, body)
					}
				})
				b.ReportMetric(float64((cpuOf(pid)-began).Microseconds())/float64(b.N), "cpu-µs/call")
				b.ReportMetric(float64(len(body)+len(answer))/1024, "KB/call")
				b.ReportMetric(float64(tokens), "tokens/call")
			})
		}
	}
	b.Run("first-byte", func(b *testing.B) {
		_, tap, engine := benchTap(b)
		url, body := beginSession(b, tap)+chat.path, apiBody(chat.form, 4<<10, true, marker)
		var direct, tapped []time.Duration
		for b.Loop() {
			_, first := postBody(b, engine+chat.path, body)
			direct = append(direct, first)
			_, first = postBody(b, url, body)
			tapped = append(tapped, first)
		}
		slices.Sort(direct)
		slices.Sort(tapped)
		b.ReportMetric(float64((tapped[len(tapped)/2] - direct[len(direct)/2]).Microseconds()), "added-µs-p50")
		b.ReportMetric(float64((tapped[len(tapped)*9/10] - direct[len(direct)*9/10]).Microseconds()), "added-µs-p90")
	})
	for _, api := range apis {
		b.Run("memory/api="+api.name, func(b *testing.B) {
			pid, tap, engine := benchTap(b)
			const size = 64 << 10
			_, tokens := engineAnswer(b, engine, apiBody(chat.form, size, false, marker))
			_, tokens2 := engineAnswer(b, engine, apiBody(chat.form, size*20_000/tokens, false, marker))
			b.ReportMetric(float64(tokens2), "tokens/session")
			body := apiBody(api.form, size*20_000/tokens, false, marker)
			postBody(b, beginSession(b, tap)+api.path, body)
			before := resident(pid)
			for b.Loop() {
				postBody(b, beginSession(b, tap)+api.path, body)
			}
			b.ReportMetric(float64(resident(pid)-before)/float64(b.N), "resident-B/session")
			b.ReportMetric(float64(resident(pid))/(1<<20), "resident-MiB")
		})
	}
}
