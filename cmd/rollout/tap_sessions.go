package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/input"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector/session/store"
	"github.com/rollout-rl/rollout/collector/tap"
	"github.com/rollout-rl/rollout/collector/tap/proxy"
)

// access contains the flags that decide who can use a tap.
type access struct {
	tokenFile       string
	insecure        bool
	tlsCert, tlsKey string
}

// leastToken is the minimum length of a token.
const leastToken = 16

// read returns the token and the TLS configuration. Without TLS, config is nil. read adds complaints
// to bad.
func (a *access) read(bad *exit.Complaints, listen string) (token string, config *tls.Config) {
	if a.tokenFile != "" {
		b, err := input.Read(a.tokenFile, input.MaxPEM, input.Wait)
		token = strings.TrimSpace(string(b))
		if err == nil && (len(token) < leastToken || strings.ContainsAny(token, " \t\r\n")) {
			err = fmt.Errorf("%s: want one word of at least %d characters", a.tokenFile, leastToken)
		}
		bad.Flag("token-file", err)
	}
	if a.insecure && a.tokenFile != "" {
		bad.Flag("insecure", errors.New("cannot be used with --token-file"))
	}
	if !isLoopback(listen) && token == "" && !a.insecure && len(*bad) == 0 {
		bad.Flag("listen", fmt.Errorf("%s is not a loopback address: every client that can connect could use the engines and read the spool; set --token-file, or --insecure if the network is private", listen))
	}
	if (a.tlsCert == "") != (a.tlsKey == "") {
		bad.Flag("tls-cert", errors.New("must be used together with --tls-key"))
	} else if a.tlsCert != "" {
		pair, err := tls.LoadX509KeyPair(a.tlsCert, a.tlsKey)
		bad.Flag("tls-cert", err)
		config = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	return token, config
}

// isLoopback reports whether only this machine can connect to the address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// openSessions opens the sessions in the folder of the spool.
func openSessions(cfg *proxy.Config, spool tap.SpoolConfig, log *slog.Logger) (*store.Store, error) {
	s, err := store.Open(store.Config{
		Dir: filepath.Join(spool.Dir, runfolder.SessionsDir), MaxAge: spool.MaxAge, MaxBytes: spool.MaxBytes, Log: log,
	})
	if err != nil {
		return nil, exit.With(exit.Storage, err)
	}
	cfg.Sessions = s
	return s, nil
}

// probe checks that the engines return token ids. An engine that is not reachable yet is checked again
// at its first call.
func probe(ctx context.Context, tapped *proxy.Proxy, log *slog.Logger) error {
	err := tapped.Probe(ctx)
	switch {
	case errors.Is(err, proxy.ErrNoIDs):
		return exit.With(exit.Unusable, err)
	case err != nil:
		log.Warn("engine_unchecked", "error", err.Error())
	}
	return nil
}

// sessionPages serves the sealed sessions to collections on other machines.
func sessionPages(pages *http.ServeMux, s *store.Store) {
	pages.Handle("/tap/sessions", s.Handler())
	pages.Handle("/tap/sessions/", s.Handler())
}
