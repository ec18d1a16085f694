package lettasim_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rollout-rl/rollout/collector/letta/lettasim"
)

// BenchmarkSend measures the simulator itself over a loopback connection. With cached bodies it
// must be faster than the code that it is used to measure.
func BenchmarkSend(b *testing.B) {
	for _, bm := range []struct {
		cache, tokens int
	}{
		{0, 400}, {0, 7300}, {48, 7300},
	} {
		b.Run(fmt.Sprintf("cache=%d/tokens=%d", bm.cache, bm.tokens), func(b *testing.B) {
			s := start(b, lettasim.Config{BodyCache: bm.cache, Script: lettasim.Script{Calls: lettasim.Range{Min: 1, Max: 1}, Tokens: lettasim.Range{Min: bm.tokens, Max: bm.tokens}}})
			n, size := 0, int64(0)
			buf := make([]byte, 1<<20)
			call := func(method, path, body string) int64 {
				req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				req.Header = s.header
				resp, err := s.client.Do(req)
				if err != nil {
					b.Fatal(err)
				}
				defer resp.Body.Close()
				if resp.StatusCode != 200 {
					b.Fatal(resp.Status)
				}
				got, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, buf)
				if err != nil {
					b.Fatal(err)
				}
				return got
			}
			for i := range bm.cache * 4 { // fill the cache
				id, _ := s.create("warm", i, 1)
				call("POST", "/v1/agents/"+id+"/messages", sendBody)
				call("DELETE", "/v1/agents/"+id, "")
			}
			id, _ := s.create("bench", 0, 1)
			b.ReportAllocs()
			for b.Loop() {
				size = call("POST", "/v1/agents/"+id+"/messages", sendBody)
				if n++; n%50 == 0 {
					call("DELETE", "/v1/agents/"+id, "")
					id, _ = s.create("bench", n, 1)
				}
			}
			b.SetBytes(size)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "replies/s")
		})
	}
}
