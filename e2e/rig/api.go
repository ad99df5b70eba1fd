package rig

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
)

// Do calls the API and decodes the answer into out, which may be nil. It returns the status.
func (i *Instance) Do(method, path string, body, out any) int {
	i.T.Helper()
	var r io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			i.T.Fatal(err)
		}
		r = bytes.NewReader(text)
	}
	req, err := http.NewRequest(method, "http://"+i.Ready.HTTP+path, r)
	if err != nil {
		i.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+i.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := i.HTTP.Do(req)
	if err != nil {
		i.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		i.T.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			i.T.Fatalf("%s %s: %v: %s", method, path, err, text)
		}
	}
	if resp.StatusCode >= 400 {
		i.T.Logf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	return resp.StatusCode
}

// Want is Do, and fails the test if the status is another one.
func (i *Instance) Want(status int, method, path string, body, out any) {
	i.T.Helper()
	if got := i.Do(method, path, body, out); got != status {
		i.T.Fatalf("%s %s: status %d, want %d", method, path, got, status)
	}
}

// AddDomain connects a domain with builtin DNS, waits until it is complete, and returns its id.
func (i *Instance) AddDomain(name string) (id string) {
	i.T.Helper()
	var connected struct {
		Domains []struct {
			DomainID string `json:"domain_id"`
			Status   string
		}
	}
	i.Want(200, "POST", "/v1/domains/connect", map[string]any{"domains": []string{name}}, &connected)
	if len(connected.Domains) != 1 || connected.Domains[0].Status != "created" {
		i.T.Fatalf("connect: %+v", connected)
	}
	i.Want(200, "POST", "/v1/domains/check-ns", map[string]any{"domains": []string{name}}, nil)
	id = connected.Domains[0].DomainID
	i.Until("the domain is complete", func() bool {
		var d struct{ Status string }
		i.Want(200, "GET", "/v1/domains/"+id, nil, &d)
		return d.Status == "complete"
	})
	return id
}

// AddMailbox creates a mailbox and returns its id.
func (i *Instance) AddMailbox(email, password string) (id string) {
	i.T.Helper()
	var made struct {
		UserID string `json:"user_id"`
		Status string
	}
	i.Want(201, "POST", "/v1/email-users", map[string]any{"email": email, "password": password}, &made)
	if made.Status != "active" {
		i.T.Fatalf("mailbox %s is %s", email, made.Status)
	}
	return made.UserID
}

// An InboxRow has the fields of an inbox message that tests read.
type InboxRow struct {
	UID               string
	Mailbox           string
	Subject           string
	MessageID         string  `json:"message_id"`
	OriginalMessageID *string `json:"original_message_id"`
	HasAttachments    bool    `json:"has_attachments"`
	IsBounce          bool    `json:"is_bounce"`
	Size              int64
}

// Inbox returns the messages of a mailbox's inbox, from all pages.
func (i *Instance) Inbox(userID string) []InboxRow {
	i.T.Helper()
	var all []InboxRow
	cursor := ""
	for {
		var page struct {
			Data       []InboxRow
			Pagination struct {
				Cursor  *string
				HasMore bool `json:"has_more"`
			}
		}
		i.Want(200, "GET", "/v1/email-users/"+userID+"/inbox?limit=100"+cursor, nil, &page)
		all = append(all, page.Data...)
		if !page.Pagination.HasMore {
			return all
		}
		cursor = "&cursor=" + *page.Pagination.Cursor
	}
}

// A Credential is the answer of create_credential.
type Credential struct {
	ID, Username, Password string
}

// AppPassword creates an app password of a mailbox; more has further members of the request.
func (i *Instance) AppPassword(box string, more map[string]any) (c Credential) {
	i.T.Helper()
	body := map[string]any{"name": "a program"}
	for name, v := range more {
		body[name] = v
	}
	i.Want(201, "POST", "/v1/email-users/"+box+"/credentials", body, &c)
	return c
}

// A Job has the fields of a job that tests read.
type Job struct {
	JobID    string `json:"job_id"`
	Status   string
	Attempts int
	Error    *struct{ Code, Message string }
	Steps    []struct {
		Name, Status string
		Error        *string
	}
	Resource struct{ ID string }
}

// SendingLog returns the newest 100 rows of the sending log by recipient.
func SendingLog(i *Instance) map[string]LogRow {
	i.T.Helper()
	var page struct{ Data []LogRow }
	i.Want(200, "GET", "/v1/messages?limit=100", nil, &page)
	out := map[string]LogRow{}
	for _, r := range page.Data {
		out[r.Recipient] = r
	}
	return out
}

// As returns the same instance, whose API is called with another token.
func (i *Instance) As(token string) *Instance {
	other := *i
	other.Token = token
	return &other
}

// SecondAccount creates a second account, and returns the instance with its token.
func (i *Instance) SecondAccount() *Instance {
	i.T.Helper()
	out, code := Run(i.T, "account", "create", "--data", i.Dir, "--owner-email", "second@example.org", "--json")
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 || made.Token == "" {
		i.T.Fatalf("account create: %d %v %s", code, err, out)
	}
	return i.As(made.Token)
}

// GetText returns the undecoded answer to a GET request, whatever its status.
func (i *Instance) GetText(path string) string {
	i.T.Helper()
	req, err := http.NewRequest("GET", "http://"+i.Ready.HTTP+path, nil)
	if err != nil {
		i.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+i.Token)
	resp, err := i.HTTP.Do(req)
	if err != nil {
		i.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		i.T.Fatal(err)
	}
	return string(text)
}

// FirstID returns the id of the first row of a list.
func (i *Instance) FirstID(path string) string {
	i.T.Helper()
	var page struct {
		Data []struct {
			ID    string
			JobID string `json:"job_id"`
		}
	}
	i.Want(200, "GET", path, nil, &page)
	if len(page.Data) == 0 {
		i.T.Fatalf("%s lists nothing", path)
	}
	if page.Data[0].ID == "" {
		return page.Data[0].JobID
	}
	return page.Data[0].ID
}

// WantSuppressed fails the test unless exactly these addresses are suppressed, each for its reason.
func (i *Instance) WantSuppressed(want map[string]string) {
	i.T.Helper()
	if got := i.Suppressions(); !maps.Equal(got, want) {
		i.T.Errorf("suppressed are %v, want %v", got, want)
	}
}

// Suppressions returns the reason of each suppressed address.
func (i *Instance) Suppressions() map[string]string {
	i.T.Helper()
	var page struct {
		Data []struct{ Email, Reason string }
	}
	i.Want(200, "GET", "/v1/suppressions?limit=100", nil, &page)
	out := map[string]string{}
	for _, s := range page.Data {
		out[s.Email] = s.Reason
	}
	return out
}

// EachRow calls note for each row of all pages of a list of messages; path ends in ? or &.
func (i *Instance) EachRow(path string, note func(subject, recipient string)) {
	for cursor := ""; ; {
		var page struct {
			Data       []struct{ Subject, Recipient string }
			Pagination struct{ Cursor *string }
		}
		i.Want(200, "GET", path+"limit=100"+cursor, nil, &page)
		for _, m := range page.Data {
			note(m.Subject, m.Recipient)
		}
		if page.Pagination.Cursor == nil {
			return
		}
		cursor = "&cursor=" + *page.Pagination.Cursor
	}
}

// SendingRows returns the rows of the sending log, from all pages.
func (i *Instance) SendingRows() (list []LogRow) {
	i.T.Helper()
	for cursor := ""; ; {
		var page struct {
			Data       []LogRow
			Pagination struct {
				Cursor  *string
				HasMore bool `json:"has_more"`
			}
		}
		i.Want(200, "GET", "/v1/messages?limit=100"+cursor, nil, &page)
		list = append(list, page.Data...)
		if !page.Pagination.HasMore {
			return list
		}
		cursor = "&cursor=" + *page.Pagination.Cursor
	}
}

// AddDomainNamed is AddDomain, but returns the name.
func (i *Instance) AddDomainNamed(name string) string {
	i.T.Helper()
	i.AddDomain(name)
	return name
}

// Pages calls fn for each row of all pages of a list of messages or events, and counts them.
func (i *Instance) Pages(path string, fn func(mailbox, subject string)) (rows int) {
	i.T.Helper()
	type data struct{ Mailbox, Subject string }
	for cursor := ""; ; {
		var page struct {
			Data []struct {
				data
				Event data `json:"data"`
			}
			Pagination struct {
				Cursor  *string
				HasMore bool `json:"has_more"`
			}
		}
		i.Want(200, "GET", path+cursor, nil, &page)
		for _, r := range page.Data {
			rows++
			if r.Mailbox == "" {
				r.data = r.Event
			}
			fn(r.Mailbox, r.Subject)
		}
		if !page.Pagination.HasMore {
			return rows
		}
		cursor = "&cursor=" + *page.Pagination.Cursor
	}
}

// HasAll reports whether the account's inbox has at least n messages that match the filter.
func (i *Instance) HasAll(filter string, n int) bool {
	return i.Pages("/v1/inbox?limit=100&"+filter, func(string, string) {}) >= n
}

// Post sends a POST request with further header fields, given as names and values in turn.
func (i *Instance) Post(path string, body any, header ...string) (status int, fields http.Header, text string) {
	i.T.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		i.T.Fatal(err)
	}
	req, err := http.NewRequest("POST", "http://"+i.Ready.HTTP+path, bytes.NewReader(data))
	if err != nil {
		i.T.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(path, "/v1/") {
		req.Header.Set("Authorization", "Bearer "+i.Token)
	}
	for k := 0; k < len(header); k += 2 {
		req.Header.Set(header[k], header[k+1])
	}
	resp, err := i.HTTP.Do(req)
	if err != nil {
		i.T.Fatal(err)
	}
	defer resp.Body.Close()
	data, err = io.ReadAll(resp.Body)
	if err != nil {
		i.T.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

// SignIn signs the owner in to the dashboard, with a second-factor code if that is not empty.
func (i *Instance) SignIn(code string) (status int, cookie, text string) {
	i.T.Helper()
	body := map[string]string{"email": "owner@example.org", "password": "correct horse"}
	if code != "" {
		body["code"] = code
	}
	status, fields, text := i.Post("/session", body)
	cookie, _, _ = strings.Cut(fields.Get("Set-Cookie"), ";")
	return status, cookie, text
}

// A LogRow has the fields of a row of the sending log that tests read.
type LogRow struct {
	ID, Recipient, Status, Transport string
	Attempts                         int
	MessageID                        string  `json:"message_id"`
	ProviderMessageID                *string `json:"provider_message_id"`
	Provider                         *string
	LastResponse                     *string `json:"last_response"`
}

// WaitUntilSent waits until the account has no queued recipient any more, and returns the sending
// log by recipient.
func WaitUntilSent(i *Instance) map[string]LogRow {
	i.T.Helper()
	out := map[string]LogRow{}
	i.Until("the queue is empty", func() bool {
		clear(out)
		var page struct{ Data []LogRow }
		i.Want(200, "GET", "/v1/messages?limit=100", nil, &page)
		for _, r := range page.Data {
			if r.Status == "queued" || r.Status == "deferred" {
				return false
			}
			out[r.Recipient] = r
		}
		return true
	})
	return out
}
