package letta

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
)

// CreateTool makes a tool. One of that name must not exist.
func (c *Client) CreateTool(ctx context.Context, t *ToolCreate) (*Tool, error) {
	out := new(Tool)
	if err := c.call(ctx, &request{op: "create tool", method: http.MethodPost, path: "/v1/tools/"}, t, out); err != nil {
		return nil, err
	}
	return out, nil
}

// UpsertTool makes a tool, or changes the one of that name.
func (c *Client) UpsertTool(ctx context.Context, t *ToolCreate) (*Tool, error) {
	out := new(Tool)
	if err := c.call(ctx, &request{op: "upsert tool", method: http.MethodPut, path: "/v1/tools/"}, t, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Tools lists the tools of the server.
func (c *Client) Tools(ctx context.Context) ([]Tool, error) {
	return pages(1000, func(after string, limit int) ([]Tool, error) {
		q := url.Values{"limit": {strconv.Itoa(limit)}}
		if after != "" {
			q.Set("after", after)
		}
		var out []Tool
		err := c.call(ctx, &request{op: "list tools", method: http.MethodGet, path: "/v1/tools/", query: q}, nil, &out)
		return out, err
	}, func(t *Tool) string { return t.ID })
}

// Models lists the models of the server.
func (c *Client) Models(ctx context.Context) ([]Model, error) {
	var out []Model
	err := c.call(ctx, &request{op: "list models", method: http.MethodGet, path: "/v1/models/"}, nil, &out)
	return out, err
}

// Providers lists the providers of models.
func (c *Client) Providers(ctx context.Context) ([]Provider, error) {
	var out []Provider
	err := c.call(ctx, &request{op: "list providers", method: http.MethodGet, path: "/v1/providers/"}, nil, &out)
	return out, err
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
