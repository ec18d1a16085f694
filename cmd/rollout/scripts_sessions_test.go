package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rollout-rl/rollout/collector/session"
)

// Script commands for harnesses and sessions.

// scriptAgent is a small harness: agent URL PROMPT. It sends the prompt to the model, answers the tool
// calls of the model, and prints the last answer. With [no call] in the prompt it makes no call, and
// with [silent] it prints nothing. With [exit N] it exits with N.
func scriptAgent() {
	code, err := runAgent(os.Args[1], os.Args[2])
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
	}
	os.Exit(code) //nolint:forbidigo // the main function of a program
}

func runAgent(url, prompt string) (code int, err error) {
	if strings.Contains(prompt, "[no call]") {
		return 0, nil
	}
	messages := []any{map[string]any{"role": "user", "content": prompt}}
	for {
		raw, err := agentCall(url, messages)
		if err != nil {
			return 1, err
		}
		var m struct {
			Content   string
			ToolCalls []struct{ ID string } `json:"tool_calls"`
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			return 1, err
		}
		if len(m.ToolCalls) == 0 {
			if !strings.Contains(prompt, "[silent]") {
				_, err = os.Stdout.WriteString(m.Content + "\n")
			}
			if _, n, ok := strings.Cut(prompt, "[exit "); ok {
				code, _ = strconv.Atoi(n[:1])
			}
			return code, err
		}
		messages = append(messages, raw)
		for _, c := range m.ToolCalls {
			messages = append(messages, map[string]any{"role": "tool", "tool_call_id": c.ID, "content": "done"})
		}
	}
}

// agentCall sends the messages, and returns the message of the model.
func agentCall(url string, messages []any) (json.RawMessage, error) {
	tools := json.RawMessage(`[{"type":"function","function":{"name":"bash","parameters":{"type":"object","properties":{"command":{"type":"string"}}}}}]`)
	body, err := json.Marshal(map[string]any{"model": "policy", "messages": messages, "tools": tools})
	if err != nil {
		return nil, err
	}
	resp, err := http.Post(url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer struct {
		Choices []struct{ Message json.RawMessage }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.Choices) != 1 {
		return nil, errors.Join(errors.New(resp.Status), err)
	}
	return answer.Choices[0].Message, nil
}

// request STATUS METHOD URL [BODY] sends a request, with the token in the variable TOKEN if it is
// set, and checks the status. It prints the body of the answer. The variable CA names the certificate
// to trust.
func scriptRequest(ts *testscript.TestScript, args []string) {
	args = append(args, "")
	req, err := http.NewRequest(args[1], args[2], strings.NewReader(args[3]))
	ts.Check(err)
	if token := ts.Getenv("TOKEN"); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	status, body := scriptDo(ts, req)
	_, err = ts.Stdout().Write(body)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("answer"), body, 0o600))
	if strconv.Itoa(status) != args[0] {
		ts.Fatalf("%s %s: %d, want %s: %s", args[1], args[2], status, args[0], body)
	}
}

// scriptDo sends a request.
func scriptDo(ts *testscript.TestScript, req *http.Request) (status int, body []byte) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	if ca := ts.Getenv("CA"); ca != "" {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(ts.ReadFile(ca)))
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	resp, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	ts.Check(err)
	return resp.StatusCode, body
}

// guarded URL TOKEN checks that each page of a tap needs the token, and that no key opens it.
func scriptGuarded(ts *testscript.TestScript, args []string) {
	ask := func(page, header, secret string) (int, string) {
		method, path, _ := strings.Cut(page, " ")
		req, err := http.NewRequest(method, args[0]+path, http.NoBody)
		ts.Check(err)
		if header != "" {
			req.Header.Set(header, secret)
		}
		status, body := scriptDo(ts, req)
		return status, string(body)
	}
	_, began := ask("POST /r", "Authorization", "Bearer "+args[1])
	key := session.KeyPattern.FindString(began)
	if key == "" {
		ts.Fatalf("POST /r: %s", began)
	}
	for _, page := range []string{
		"POST /r", "GET /r", "POST /r/", "GET /tap/", "GET /tap/metrics", "GET /tap/segments", "GET /tap/segments/1", "GET /tap/sessions", "GET /tap/sessions/x",
		"GET /metrics", "GET /debug/pprof/", "GET /", "GET /v1/models", "POST /v1/embeddings", "POST /generate", "POST /update_weights_from_disk",
	} {
		for _, c := range []struct {
			header, secret string
			opens          bool
		}{
			{"", "", false},
			{"Authorization", "Bearer " + args[1] + "x", false},
			{"Authorization", "Bearer " + string(session.NewKey()), false},
			{"Authorization", "Bearer " + args[1], true},
			{"X-Api-Key", args[1], true},
		} {
			if status, body := ask(page, c.header, c.secret); c.opens == (status == http.StatusUnauthorized) {
				ts.Fatalf("%s with %q: %d %s", page, c.header+" "+c.secret, status, body)
			}
		}
		if page == "GET /v1/models" {
			continue // a page of the session
		}
		if status, body := ask(page, "X-Api-Key", key); status != http.StatusNotFound {
			ts.Fatalf("%s with a key: %d %s", page, status, body)
		}
	}
	if status, body := ask("GET /healthz", "", ""); status == http.StatusUnauthorized {
		ts.Fatalf("GET /healthz: %s", body)
	}
	if status, body := ask("POST /r/"+key+"/end", "", ""); status != http.StatusOK {
		ts.Fatalf("the end: %d %s", status, body)
	}
}

// certificate CERT KEY writes a certificate for 127.0.0.1 and its key.
func scriptCertificate(ts *testscript.TestScript, args []string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	ts.Check(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}
