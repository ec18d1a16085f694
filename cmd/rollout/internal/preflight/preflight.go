// Package preflight checks whether a run can work, before anything is written. [Ask] checks each
// server. A [Trial] makes one model call per server and judges the reply as the run would.
package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/collector"
	"github.com/rollout-rl/rollout/collector/agent"
	"github.com/rollout-rl/rollout/collector/letta"
	"github.com/rollout-rl/rollout/collector/record"
	"github.com/rollout-rl/rollout/collector/wait"
)

// A Server contains the checks for one server of a run.
type Server struct {
	URL string
	// Ask checks that the server answers, that it authorizes the client, and that it meets the
	// needs of the run.
	Ask func(context.Context) (runfolder.Server, error)
	// Unusable adds an exit code and a hint to an error from Ask. If it is nil, the function Unusable
	// does this.
	Unusable func(error) error
	// Try makes one model call for a task, like [agent.Backend.Try]. It is nil if the run only
	// reads server runs, because there is no call to try.
	Try func(ctx context.Context, task *collector.Task, try int, look func(context.Context, *collector.Reply, *record.Rollout) error) error
}

// Drives returns the Server for a run that drives agents. The server must have the model and return
// token data.
func Drives(b *agent.Backend) Server {
	url := b.Client().BaseURL()
	return Server{URL: url, Try: b.Try, Ask: func(ctx context.Context) (runfolder.Server, error) {
		found, err := b.Preflight(ctx)
		if err != nil {
			return runfolder.Server{}, err
		}
		return runfolder.Server{URL: url, Version: found.Version, Model: describeServerModel(found.Model)}, nil
	}}
}

// Reads returns the Server for a run that only reads server runs. The server must be able to list
// them.
func Reads(r *agent.Reader) Server {
	url := r.Client().BaseURL()
	return Server{URL: url, Ask: func(ctx context.Context) (runfolder.Server, error) {
		version, err := r.Client().Health(ctx)
		if err == nil {
			err = r.Check(ctx, "")
		}
		if err != nil {
			return runfolder.Server{}, agent.Translate(err)
		}
		return runfolder.Server{URL: url, Version: version.Version}, nil
	}}
}

// Ask checks every server, one after the other. If any server is unusable, Ask fails. After a
// transient error, Ask retries a few times. Before each retry, it calls the callback "again" with
// the server's URL, the error and the pause.
func Ask(ctx context.Context, servers []Server, again func(server string, err error, wait time.Duration)) ([]runfolder.Server, error) {
	var infos []runfolder.Server
	for _, s := range servers {
		var info runfolder.Server
		err := tryAgain(ctx, func() (err error) {
			info, err = s.Ask(ctx)
			return err
		}, func(err error, wait time.Duration) { again(s.URL, err, wait) })
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil && s.Unusable != nil:
			return nil, s.Unusable(err)
		case err != nil:
			return nil, Unusable(s.URL, err)
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// Limits of tryAgain. If a server is unreachable, tryAgain fails within seconds. If every request
// times out, tryAgain does not spend minutes on retries.
const (
	preflightTries = 3
	preflightPause = time.Second // pause before the first retry; doubles after each try
	preflightMost  = 30 * time.Second
	preflightAsked = 5 * time.Second // maximum Retry-After that is honored
)

// tryAgain retries ask after a transient error, because an unattended run has no user who could
// restart it.
func tryAgain(ctx context.Context, ask func() error, again func(err error, wait time.Duration)) error {
	began := time.Now()
	for try, pause := 1, preflightPause; ; try, pause = try+1, 2*pause {
		err := ask()
		if err == nil || try == preflightTries || !mayPass(err) || ctx.Err() != nil || time.Since(began) > preflightMost {
			return err
		}
		delay := pause
		if e, ok := errors.AsType[*letta.APIError](err); ok {
			delay = max(delay, min(e.RetryDelay(), preflightAsked))
		}
		if again(err, delay); !wait.For(ctx, delay) {
			return context.Cause(ctx)
		}
	}
}

// mayPass reports whether an error is transient: no connection, no capacity, no answer in time, or
// an error on the server.
func mayPass(err error) bool {
	if errors.Is(err, http.ErrSchemeMismatch) {
		return false
	}
	switch collector.Classify(err) {
	case collector.ClassAborted, collector.ClassConnection, collector.ClassRateLimited, collector.ClassUnavailable, collector.ClassTimeoutTotal, collector.ClassTimeoutIdle:
		return true
	case collector.ClassServerError:
		e, ok := errors.AsType[*letta.APIError](err)
		return ok && e.Status >= http.StatusInternalServerError // an undecodable reply is not transient
	default:
		return false
	}
}

func describeServerModel(m *letta.Model) *runfolder.ServerModel {
	if m == nil {
		return nil
	}
	return &runfolder.ServerModel{Handle: m.Handle, Name: cmp.Or(m.Model, m.Name), ContextWindow: m.ContextWindow, EndpointType: m.ModelEndpointType}
}

// Unusable adds the server's URL and a hint to an error that ends the run.
func Unusable(base string, err error) error {
	if !strings.Contains(err.Error(), base) {
		err = fmt.Errorf("server %s: %w", base, err)
	}
	err = exit.With(exit.Unusable, agent.Translate(err))
	if run, ok := errors.AsType[*agent.ServerRunError](err); ok && run.Engine != "" {
		return exit.Hint(err, "the Letta server is up, so check its model engine and the engine's log")
	}
	if _, unknown := errors.AsType[*agent.ModelError](err); unknown {
		return exit.Hint(err, "use --model with a handle that the server lists; only models from an sglang provider return token data")
	}
	if _, none := errors.AsType[*letta.NoTurnsError](err); none {
		return exit.Hint(err, "use --model with a model from an sglang provider; models from other providers return no token data")
	}
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return exit.Hint(err, "the server does not use TLS: did you mean http"+strings.TrimPrefix(base, "https")+"?")
	case strings.Contains(err.Error(), "HTTP request to an HTTPS server"), strings.Contains(err.Error(), "plain HTTP request was sent to HTTPS port"):
		return exit.Hint(err, "the server requires TLS: did you mean https"+strings.TrimPrefix(base, "http")+"?")
	case errors.Is(err, collector.ErrAuth):
		return exit.Hint(err, "set server.password or ROLLOUT_SERVER_PASSWORD to the server's password")
	case errors.Is(err, collector.ErrConnection) && withPort(base) != "":
		return exit.Hint(err, "check that the server is running and that the address is right; a Letta server listens on port 8283 (did you mean "+withPort(base)+"?)")
	case errors.Is(err, collector.ErrConnection), errors.Is(err, collector.ErrTimeout):
		return exit.Hint(err, "check that the server is running and that the address is right; a Letta server listens on port 8283")
	case letta.IsNotFound(err):
		return exit.Hint(err, "check that this is the address of a Letta server; the address must not end in /v1")
	default:
		return err
	}
}

// withPort adds Letta's default port to an http URL that has no port. It returns "" for any other
// URL.
func withPort(base string) string {
	u, err := url.Parse(base)
	if err != nil || u.Port() != "" || u.Scheme != "http" {
		return ""
	}
	u.Host += ":8283"
	return u.String()
}
