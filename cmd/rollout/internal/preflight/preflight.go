// Package preflight finds out before anything is written whether a run would work. [Ask]
// asks every server what a run needs of it; a [Trial] has it make one call of the model and
// judges what comes as a sample is.
package preflight

import (
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
)

// Ask asks every server what a run needs before anything is written: that it
// answers, lets us in, has the model, and gives token data. One that cannot be used
// ends it, however many others there are. What may pass is tried a few times; again is
// told before each.
func Ask(ctx context.Context, backends []*agent.Backend, again func(server string, err error, wait time.Duration)) ([]runfolder.Server, error) {
	return askEach(ctx, backends, askServer, again)
}

// AskReaders is Ask where nothing is sent to the servers: that each answers, lets us in, and
// lists its server runs.
func AskReaders(ctx context.Context, readers []*agent.Reader, again func(server string, err error, wait time.Duration)) ([]runfolder.Server, error) {
	return askEach(ctx, readers, func(ctx context.Context, r *agent.Reader) (runfolder.Server, error) {
		version, err := r.Client().Health(ctx)
		if err == nil {
			err = r.Check(ctx, "")
		}
		if err != nil {
			return runfolder.Server{}, agent.Translate(err)
		}
		return runfolder.Server{URL: r.Client().BaseURL(), Version: version.Version}, nil
	}, again)
}

// askEach asks one after the other.
func askEach[B interface{ Client() *letta.Client }](ctx context.Context, all []B, ask func(context.Context, B) (runfolder.Server, error), again func(server string, err error, wait time.Duration)) ([]runfolder.Server, error) {
	var infos []runfolder.Server
	for _, b := range all {
		var info runfolder.Server
		err := tryAgain(ctx, func() (err error) {
			info, err = ask(ctx, b)
			return err
		}, func(err error, wait time.Duration) { again(b.Client().BaseURL(), err, wait) })
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, Unusable(b.Client(), err)
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// askServer is the preflight of one server.
func askServer(ctx context.Context, b *agent.Backend) (runfolder.Server, error) {
	found, err := b.Preflight(ctx)
	if err != nil {
		return runfolder.Server{}, err
	}
	info := runfolder.Server{URL: b.Client().BaseURL(), Version: found.Version, Model: describeServerModel(found.Model)}
	return info, nil
}

// The bounds of tryAgain: a server that is not there is given up after seconds, and
// one that lets every request time out is not asked for minutes.
const (
	preflightTries = 3
	preflightPause = time.Second // then twice as long
	preflightMost  = 30 * time.Second
	preflightAsked = 5 * time.Second // of a Retry-After, at most
)

// tryAgain asks again where an error may pass: nobody may be there to start an
// unattended run again.
func tryAgain(ctx context.Context, ask func() error, again func(err error, wait time.Duration)) error {
	began := time.Now()
	for try, pause := 1, preflightPause; ; try, pause = try+1, 2*pause {
		err := ask()
		if err == nil || try == preflightTries || !mayPass(err) || ctx.Err() != nil || time.Since(began) > preflightMost {
			return err
		}
		wait := pause
		if e, ok := errors.AsType[*letta.APIError](err); ok {
			wait = max(wait, min(e.RetryDelay(), preflightAsked))
		}
		again(err, wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// mayPass reports whether an error is about the moment and not about the server: no
// connection, no room, no answer in time, or a failure of its own.
func mayPass(err error) bool {
	if errors.Is(err, http.ErrSchemeMismatch) {
		return false
	}
	switch collector.Classify(err) {
	case collector.ClassAborted, collector.ClassConnection, collector.ClassRateLimited, collector.ClassUnavailable, collector.ClassTimeoutTotal, collector.ClassTimeoutIdle:
		return true
	case collector.ClassServerError:
		e, ok := errors.AsType[*letta.APIError](err)
		return ok && e.Status >= http.StatusInternalServerError // and not an answer that cannot be read
	default:
		return false
	}
}

// describeServerModel is what a server says about a model; nil where it has none.
func describeServerModel(m *letta.Model) *runfolder.ServerModel {
	if m == nil {
		return nil
	}
	name := m.Model
	if name == "" {
		name = m.Name
	}
	return &runfolder.ServerModel{Handle: m.Handle, Name: name, ContextWindow: m.ContextWindow, EndpointType: m.ModelEndpointType}
}

// Unusable says which server it is about and what the user can do.
func Unusable(client *letta.Client, err error) error {
	if !strings.Contains(err.Error(), client.BaseURL()) {
		err = fmt.Errorf("server %s: %w", client.BaseURL(), err)
	}
	err = exit.With(exit.Unusable, agent.Translate(err))
	if run, ok := errors.AsType[*agent.ServerRunError](err); ok && run.Engine != "" {
		return exit.Hint(err, "the Letta server is there: look at the model engine behind it, and at its log")
	}
	if _, unknown := errors.AsType[*agent.ModelError](err); unknown {
		return exit.Hint(err, "give a handle that the server lists with --model; token data come from models of a provider of type sglang")
	}
	if _, none := errors.AsType[*letta.NoTurnsError](err); none {
		return exit.Hint(err, "give a model of a provider of type sglang with --model: no other gives token data")
	}
	base := client.BaseURL()
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return exit.Hint(err, "the server answers without TLS: did you mean http"+strings.TrimPrefix(base, "https")+"?")
	case strings.Contains(err.Error(), "HTTP request to an HTTPS server"), strings.Contains(err.Error(), "plain HTTP request was sent to HTTPS port"):
		return exit.Hint(err, "the server wants TLS: did you mean https"+strings.TrimPrefix(base, "http")+"?")
	case errors.Is(err, collector.ErrAuth):
		return exit.Hint(err, "set server.password, or ROLLOUT_SERVER_PASSWORD, to the password of the server")
	case errors.Is(err, collector.ErrConnection) && withPort(base) != "":
		return exit.Hint(err, "is the server running, and is the address right? a Letta server listens on port 8283: did you mean "+withPort(base)+"?")
	case errors.Is(err, collector.ErrConnection), errors.Is(err, collector.ErrTimeout):
		return exit.Hint(err, "is the server running, and is the address right? a Letta server listens on port 8283")
	case letta.IsNotFound(err):
		return exit.Hint(err, "is this the address of a Letta server? give it without /v1")
	default:
		return err
	}
}

// withPort is a URL that names no port with that of a Letta server; empty for every other.
func withPort(base string) string {
	u, err := url.Parse(base)
	if err != nil || u.Port() != "" || u.Scheme != "http" {
		return ""
	}
	u.Host += ":8283"
	return u.String()
}
