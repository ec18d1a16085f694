package letta

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// Health returns the health and the version of the server. The server does not require the password
// for this call.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	out := new(Health)
	if err := c.call(ctx, &request{op: "health", method: http.MethodGet, target: at("/v1/health/")}, nil, plain(out)); err != nil {
		return nil, err
	}
	c.version.Store(&out.Version)
	return out, nil
}

// Version returns the server version from the last successful call of Health. If Health has never
// succeeded, Version calls it.
func (c *Client) Version(ctx context.Context) (string, error) {
	if v := c.version.Load(); v != nil {
		return *v, nil
	}
	h, err := c.Health(ctx)
	if err != nil {
		return "", err
	}
	return h.Version, nil
}

// CreateAgent creates an agent. The body is a JSON object that conforms to the server's CreateAgent
// schema.
func (c *Client) CreateAgent(ctx context.Context, body json.RawMessage) (*AgentState, error) {
	r := &request{op: "create agent", method: http.MethodPost, target: at("/v1/agents/"), secrets: bodySecrets(body)}
	return fetch[AgentState](ctx, c, r, body)
}

// ImportAgent creates agents from an agent file (.af) and returns their ids. The parameter fields
// contains the other form fields, such as name and model. All agents created from one file share a
// prompt prefix.
func (c *Client) ImportAgent(ctx context.Context, file []byte, fields map[string]string) ([]string, error) {
	body, contentType, err := formFile("agent.af", file, fields)
	if err != nil {
		return nil, fmt.Errorf("import agent: encode: %w", err)
	}
	var out struct {
		AgentIDs []string `json:"agent_ids"`
	}
	r := &request{op: "import agent", method: http.MethodPost, target: at("/v1/agents/import"), body: body, contentType: contentType}
	if err := c.call(ctx, r, nil, plain(&out)); err != nil {
		return nil, err
	}
	return out.AgentIDs, nil
}

// Agent returns the state of an agent.
func (c *Client) Agent(ctx context.Context, id string) (*AgentState, error) {
	return fetch[AgentState](ctx, c, &request{op: "get agent", method: http.MethodGet, target: at("/v1/agents/{}", id)}, nil)
}

// PatchAgent changes the fields in patch and returns the new state.
func (c *Client) PatchAgent(ctx context.Context, id string, patch any) (*AgentState, error) {
	return fetch[AgentState](ctx, c, &request{op: "change agent", method: http.MethodPatch, target: at("/v1/agents/{}", id)}, patch)
}

// DeleteAgent deletes an agent with its server runs, steps and messages, if it exists.
func (c *Client) DeleteAgent(ctx context.Context, id string) error {
	err := c.call(ctx, &request{op: "delete agent", method: http.MethodDelete, target: at("/v1/agents/{}", id)}, nil, nil)
	if IsNotFound(err) {
		return nil
	}
	return err
}

// Agents returns one page of the agents that have all the given tags. The page starts after the
// given agent. It has at most limit agents, and the server can return fewer.
func (c *Client) Agents(ctx context.Context, tags []string, after string, limit int) ([]AgentState, error) {
	q := withTags(tags)
	q.Set("limit", strconv.Itoa(limit))
	q.Set("order", "asc")
	q.Set("include", "agent.tags")
	set(q, "after", after)
	return fetchList[AgentState](ctx, c, &request{op: "list agents", method: http.MethodGet, target: at("/v1/agents/"), query: q})
}

// CountAgents returns the number of agents that have all the given tags.
func (c *Client) CountAgents(ctx context.Context, tags ...string) (n int, err error) {
	err = c.call(ctx, &request{op: "count agents", method: http.MethodGet, target: at("/v1/agents/count"), query: withTags(tags)}, nil, plain(&n))
	return n, err
}

func withTags(tags []string) url.Values {
	q := url.Values{}
	for _, t := range tags {
		q.Add("tags", t)
	}
	if len(tags) > 1 {
		q.Set("match_all_tags", "true")
	}
	return q
}

// MessagesBefore returns at most limit messages: the newest messages that the agent stored before
// the given message. The messages come from all conversations of the agent, in the server's order.
func (c *Client) MessagesBefore(ctx context.Context, agentID, before string, limit int) (Messages, error) {
	if err := needID("list messages", agentID); err != nil {
		return nil, err
	}
	q := url.Values{"limit": {strconv.Itoa(limit)}, "order": {"desc"}}
	set(q, "before", before)
	return fetchList[Message](ctx, c, &request{op: "list messages", method: http.MethodGet, target: at("/v1/agents/{}/messages", agentID), query: q})
}

// CreateConversation creates a conversation with an agent.
func (c *Client) CreateConversation(ctx context.Context, agentID string) (*Conversation, error) {
	if err := needID("create conversation", agentID); err != nil {
		return nil, err
	}
	r := &request{op: "create conversation", method: http.MethodPost, target: at("/v1/conversations/"), query: url.Values{"agent_id": {agentID}}}
	return fetch[Conversation](ctx, c, r, struct{}{})
}

// Conversations lists the conversations of an agent, in the server's order.
func (c *Client) Conversations(ctx context.Context, agentID string) ([]Conversation, error) {
	if err := needID("list conversations", agentID); err != nil {
		return nil, err
	}
	r := &request{op: "list conversations", method: http.MethodGet, target: at("/v1/conversations/"), query: url.Values{"agent_id": {agentID}}}
	return fetchList[Conversation](ctx, c, r)
}

// Conversation returns a conversation.
func (c *Client) Conversation(ctx context.Context, id string) (*Conversation, error) {
	return fetch[Conversation](ctx, c, &request{op: "get conversation", method: http.MethodGet, target: at("/v1/conversations/{}", id)}, nil)
}

// SystemText returns the text of a system message as the model saw it. The messageID is the first
// id in AgentState.MessageIDs. A reset, a compaction or a recompile replaces this message.
func (c *Client) SystemText(ctx context.Context, messageID string) (string, error) {
	list, err := fetchList[Message](ctx, c, &request{op: "get message", method: http.MethodGet, target: at("/v1/messages/{}", messageID)})
	if err != nil {
		return "", err
	}
	for i := range list {
		if list[i].Type == TypeSystem {
			return list[i].Content.String(), nil
		}
	}
	return "", fmt.Errorf("get message: %s is not a system message", messageID)
}

// Cancel asks the server to stop the given server runs of the agent, or all of its active server
// runs if none is given. The agent stops before its next step.
func (c *Client) Cancel(ctx context.Context, agentID string, runIDs ...string) (map[string]string, error) {
	var in any = json.RawMessage("null")
	if len(runIDs) > 0 {
		in = map[string][]string{"run_ids": runIDs}
	}
	var out map[string]string
	r := &request{op: "cancel", method: http.MethodPost, target: at("/v1/agents/{}/messages/cancel", agentID)}
	err := c.call(ctx, r, in, plain(&out))
	return out, err
}
