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

// Tools lists the tools on the server.
func (c *Client) Tools(ctx context.Context) ([]Tool, error) {
	return pages(ctx, c, "list tools", at("/v1/tools/"), url.Values{}, func(t *Tool) (id, key string) { return t.ID, t.ID })
}

// RunTool runs a Python function in the server's sandbox, as an agent's tool call would. RunTool
// stores nothing on the server. If the function fails, RunTool does not return an error. See
// ToolRan.Status.
func (c *Client) RunTool(ctx context.Context, t *ToolRun) (*ToolRan, error) {
	out := new(ToolRan)
	if err := c.call(ctx, &request{op: "run tool", method: http.MethodPost, target: at("/v1/tools/run")}, t, plain(out)); err != nil {
		return nil, err
	}
	return out, nil
}

// A FoundModel is the result of Client.FindModel.
type FoundModel struct {
	// Model is the model with exactly the requested handle, or nil.
	Model *Model
	// Near contains up to 5 similar handles, the most similar first. Handles that begin with the
	// requested handle come first, then handles that contain it, then handles with a similar
	// spelling.
	Near []string
	// Count is the number of models that the server lists.
	Count int
}

const nearMost = 5

// FindModel finds a model by its handle. It does not keep the list of models in memory, because a
// server can have hundreds of thousands of models.
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

type nearHandle struct {
	handle   string
	distance int
}

// appendNear inserts the handle into the list near, which is sorted by similarity to want. The list
// keeps only the nearMost most similar handles. Equally similar handles keep their order.
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

// maxHandle is the maximum length of a handle that is compared. The time of a comparison grows with
// the square of the length.
const maxHandle = 500

// pageSize is the number of elements that the client requests per page.
const pageSize = 1000

// The function pages returns all elements of a list that the server splits into pages. The function
// id returns the cursor after an element and the key of the element. An element is skipped if an
// earlier page contained its key. A page that is not full is the last page. If a page brings no new
// element or no new cursor, the server ignores the cursor, so the listing also ends.
func pages[T any](ctx context.Context, c *Client, op string, of target, q url.Values, id func(*T) (id, key string)) ([]T, error) {
	var all []T
	seen := map[string]bool{}
	q.Set("limit", strconv.Itoa(pageSize))
	for {
		page, err := fetchList[T](ctx, c, &request{op: op, method: http.MethodGet, target: of, query: q})
		if err != nil {
			return nil, err
		}
		known, after := len(all), ""
		var keys []string
		for i := range page {
			var key string
			if after, key = id(&page[i]); !seen[key] {
				all, keys = append(all, page[i]), append(keys, key)
			}
		}
		if len(all) == known || len(page) < pageSize || after == "" || after == q.Get("after") {
			return all, nil
		}
		for _, key := range keys {
			seen[key] = true
		}
		q.Set("after", after)
	}
}
