package letta_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/letta/lettatest"
	"github.com/rollout-rl/rollout/tokenize"
)

// TestEchoedSecrets checks that no error shows a secret that a server echoes in any encoding.
func TestEchoedSecrets(t *testing.T) {
	t.Parallel()
	const (
		password = `pa"ss\wörd`
		token    = "proxy-token-1234567"
		inner    = "tool-key-<&>-99"
	)
	shapes := []string{
		`{"detail":%s}`, `{"error":{"type":"x","message":%s}}`, `{"detail":[{"loc":["body"],"msg":%s}]}`, `%s`, `<p>%s</p>`,
	}
	for i := range 2*len(shapes) - 2 { // the texts that are not JSON have no other escapes
		shape, ascii := shapes[i%len(shapes)], i >= len(shapes)
		c := lettatest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			said := fmt.Sprint(strings.Repeat("x", 280), r.Header.Get("Authorization"), r.Header.Get("X-Proxy"), string(body))
			if r.Method == http.MethodPost && r.URL.Path == "/v1/agents/" {
				said = string(body)
			}
			quoted, _ := json.Marshal(said)
			if ascii {
				quoted = []byte(strings.ReplaceAll(strconv.QuoteToASCII(said), "p", `\u0070`))
			}
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprintf(w, shape, quoted)
		}, func(cfg *letta.ClientConfig) {
			cfg.Password = password
			cfg.Headers = http.Header{"X-Proxy": {"Bearer " + token}}
		})
		_, sent := c.Send(t.Context(), "agent-1", hello(), "", new(tokenize.Reply))
		_, created := c.CreateAgent(t.Context(), json.RawMessage(`{"secrets":{"KEY":"`+inner+`"},"tool_exec_environment_variables":{"B":"`+inner+`2"}}`))
		for _, err := range []error{sent, created} {
			for _, secret := range []string{`pa"s`, `pa\"s`, "rd", "proxy-t", "tool-key", "99"} {
				if err == nil || strings.Contains(err.Error(), secret) {
					t.Errorf("%s: %v shows %q", shape, err, secret)
				}
			}
		}
		if !strings.Contains(created.Error(), "***") {
			t.Errorf("%s: %v does not repeat the request", shape, created)
		}
	}
}

// TestAddressSecrets checks that no error about an address shows a possible password.
func TestAddressSecrets(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"http://user:canary@host", "user:canary@host:8283", "http://host/?token=canary", "http://host/#canary", "http://user:canary@ho st",
	} {
		_, err := letta.NewClient(letta.ClientConfig{BaseURL: address})
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("NewClient(%q) = %v", address, err)
		}
	}
	c := lettatest.Serve(t, http.NotFound, func(cfg *letta.ClientConfig) {
		cfg.Proxy = func(*http.Request) (*url.URL, error) {
			return nil, errors.New(`invalid proxy address "http://user:canary@:x"`)
		}
	})
	if _, err := c.Health(t.Context()); err == nil || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), "proxy") {
		t.Errorf("Health = %v", err)
	}
}

// TestUnreadableAnswer checks that an answer that violates the schema is not retried.
func TestUnreadableAnswer(t *testing.T) {
	t.Parallel()
	c := lettatest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"messages":17,"turns":[]}`)
	})
	_, err := c.Send(t.Context(), "agent-1", hello(), "", new(tokenize.Reply))
	undecoded := (*tokenize.DecodeError)(nil)
	if !errors.As(err, &undecoded) || errors.Is(err, letta.ErrServer) || !strings.Contains(err.Error(), "cannot decode the answer") {
		t.Errorf("Send = %v, want that it cannot be decoded", err)
	}
}

// TestCanary checks that the password appears nowhere, even if a server echoes it.
func TestCanary(t *testing.T) {
	t.Parallel()
	const canary = "canary-7f3a"
	var notices []string
	c := lettatest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "http://elsewhere/?"+canary)
		status := 400
		if strings.Contains(r.URL.Path, "moved") {
			status = 302
		}
		if strings.Contains(r.URL.Path, "fine") {
			status = 200
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"detail":"Argument order: you sent %s"}`, r.Header.Get("Authorization"))
	}, func(cfg *letta.ClientConfig) {
		cfg.Password = canary
		cfg.Notice = func(text string) { notices = append(notices, text) }
	})
	var all []string
	for _, id := range []string{"agent-1", "moved", "fine"} {
		_, err := c.Send(t.Context(), id, hello(), "", new(tokenize.Reply))
		all = append(all, fmt.Sprintf("%v %+v %#v", err, err, err))
	}
	_, err := c.Steps(t.Context(), letta.StepsQuery{})
	all = append(append(all, err.Error()), notices...)
	cfg := letta.ClientConfig{BaseURL: "http://x", Password: canary}
	all = append(all, fmt.Sprintf("%v %+v %#v %s %q", cfg, cfg, cfg, cfg.Password, cfg.Password))
	if b, err := json.Marshal(map[string]letta.Secret{"password": canary}); err == nil {
		all = append(all, string(b))
	}
	var log strings.Builder
	entry := slog.NewRecord(time.Time{}, slog.LevelInfo, "config", 0)
	entry.AddAttrs(slog.Any("password", cfg.Password), slog.Any("config", cfg))
	if err := slog.NewTextHandler(&log, nil).Handle(t.Context(), entry); err != nil {
		t.Fatal(err)
	}
	all = append(all, log.String())
	_, err = letta.NewClient(letta.ClientConfig{BaseURL: "http://user:" + canary + "@host"})
	all = append(all, err.Error())
	for _, text := range all {
		if strings.Contains(text, canary) {
			t.Errorf("the password is in %q", text)
		}
	}
	if len(notices) != 1 {
		t.Errorf("%d notices, want the one about steps", len(notices))
	}
}
