package letta

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/collector/letta/spelling"
)

// CreateTool makes a tool. One of that name must not exist.
func (c *Client) CreateTool(ctx context.Context, t *ToolCreate) (*Tool, error) {
	return fetch[Tool](ctx, c, &request{op: "create tool", method: http.MethodPost, target: at("/v1/tools/")}, t)
}

// UpsertTool makes a tool, or changes the one of that name.
func (c *Client) UpsertTool(ctx context.Context, t *ToolCreate) (*Tool, error) {
	return fetch[Tool](ctx, c, &request{op: "upsert tool", method: http.MethodPut, target: at("/v1/tools/")}, t)
}

// Tools lists the tools of the server.
func (c *Client) Tools(ctx context.Context) ([]Tool, error) {
	return pages(1000, func(after string, limit int) ([]Tool, error) {
		q := url.Values{"limit": {strconv.Itoa(limit)}}
		if after != "" {
			q.Set("after", after)
		}
		return fetchList[Tool](ctx, c, &request{op: "list tools", method: http.MethodGet, target: at("/v1/tools/"), query: q})
	}, func(t *Tool) string { return t.ID })
}

// RunTool runs a Python function in the server's sandbox, as an agent's call of a tool does,
// and keeps nothing of it on the server. A function that fails gives no error: see ToolRan.Status.
func (c *Client) RunTool(ctx context.Context, t *ToolRun) (*ToolRan, error) {
	out := new(ToolRan)
	if err := c.call(ctx, &request{op: "run tool", method: http.MethodPost, target: at("/v1/tools/run")}, t, plain(out)); err != nil {
		return nil, err
	}
	return out, nil
}

// A FoundModel is what FindModel found.
type FoundModel struct {
	// Model is the model with the handle, nil where there is none.
	Model *Model
	// Near are the handles that are written most like it, at most 5 of them, the nearest
	// first. One that begins with the handle, or holds it, comes before every other.
	Near []string
	// Count is how many models the server lists.
	Count int
}

// nearMost bounds FoundModel.Near.
const nearMost = 5

// FindModel looks for a model by its handle. The list of models is not kept: a server
// may have hundreds of thousands.
func (c *Client) FindModel(ctx context.Context, handle string) (*FoundModel, error) {
	found := new(FoundModel)
	var near []nearHandle
	models := &eachOf[Model]{
		start: func() { *found, near = FoundModel{}, nil },
		each: func(m *Model) {
			found.Count++
			if m.Handle == handle && found.Model == nil {
				found.Model = m
			}
			near = appendNear(near, handle, m.Handle)
		},
	}
	if err := c.call(ctx, &request{op: "list models", method: http.MethodGet, target: at("/v1/models/")}, nil, models); err != nil {
		return nil, err
	}
	for _, n := range near {
		found.Near = append(found.Near, n.handle)
	}
	return found, nil
}

// A nearHandle is a handle with how far it is from the one that is looked for.
type nearHandle struct {
	handle   string
	distance int
}

// appendNear puts a handle into its place among the nearest to want, if it has one.
// Of two that are as near, the one that came first stays first.
func appendNear(near []nearHandle, want, handle string) []nearHandle {
	n := nearHandle{handle: handle}
	switch within := strings.Index(strings.ToLower(handle), strings.ToLower(want)); {
	case handle == "" || len(handle) > maxHandle || len(want) > maxHandle:
		return near
	case within == 0:
		n.distance = -2
	case within > 0:
		n.distance = -1
	default:
		n.distance = spelling.Distance(want, handle)
	}
	at := len(near)
	for at > 0 && near[at-1].distance > n.distance {
		at--
	}
	if at == nearMost || slices.Contains(near, n) {
		return near
	}
	near = slices.Insert(near, at, n)
	return near[:min(len(near), nearMost)]
}

// maxHandle is the length from which a handle is compared with none: the time of a
// comparison grows with the square.
const maxHandle = 500

// Providers lists the providers of models.
func (c *Client) Providers(ctx context.Context) ([]Provider, error) {
	var out []Provider
	providers := &eachOf[Provider]{
		start: func() { out = nil },
		each:  func(p *Provider) { out = append(out, *p) },
	}
	err := c.call(ctx, &request{op: "list providers", method: http.MethodGet, target: at("/v1/providers/")}, nil, providers)
	return out, err
}

// CreateProvider makes a provider of models. The server asks the engine for its models at once
// and hides where that fails: [Client.FindModel] tells.
func (c *Client) CreateProvider(ctx context.Context, p *ProviderCreate) (*Provider, error) {
	v := new(Provider)
	err := c.call(ctx, &request{op: "create provider", method: http.MethodPost, target: at("/v1/providers/")}, struct {
		*ProviderCreate
		APIKey string `json:"api_key"` // the server takes an empty one, but not none
	}{ProviderCreate: p}, plain(v))
	if err != nil {
		return nil, err
	}
	return v, nil
}

// pages asks for page after page of at most size until one is not full. A server
// that ignores the cursor gives the same page again, which ends it too.
func pages[T any](size int, get func(after string, limit int) ([]T, error), id func(*T) string) ([]T, error) {
	var all []T
	seen := map[string]bool{}
	for after := ""; ; {
		page, err := get(after, size)
		if err != nil {
			return nil, err
		}
		fresh := false
		for i := range page {
			if key := id(&page[i]); !seen[key] {
				seen[key], fresh = true, true
				all = append(all, page[i])
			}
		}
		if !fresh || len(page) < size {
			return all, nil
		}
		after = id(&page[len(page)-1])
	}
}
