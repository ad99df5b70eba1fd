// Mailbox connects a domain, creates a mailbox, sends a message to it and reads the message. Usage:
// mailbox DOMAIN, with MAILSTEAD_URL and MAILSTEAD_TOKEN set.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"time"
)

// api calls the API and decodes the response into out, which may be nil. If the API refuses the
// request, the error has its message.
func api(method, path string, body, out any, header ...string) error {
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequest(method, os.Getenv("MAILSTEAD_URL")+path, &content)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+os.Getenv("MAILSTEAD_TOKEN"))
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Timeout: time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		var refusal struct {
			Error struct{ Code, Message string }
		}
		if err := json.NewDecoder(resp.Body).Decode(&refusal); err != nil {
			return fmt.Errorf("%s %s: %s", method, path, resp.Status)
		}
		return fmt.Errorf("%s %s: %s: %s", method, path, refusal.Error.Code, refusal.Error.Message)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// setUp connects a domain, waits until the job that sets it up has ended, and returns the job's
// status.
func setUp(domain string) (status string, err error) {
	// Delegate the domain to the nameservers in the response. Then check the delegation, which
	// starts a job that sets the domain up.
	var connected struct {
		Domains []struct {
			ID string `json:"domain_id"`
		}
	}
	domains := map[string]any{"domains": []string{domain}}
	if err := api("POST", "/v1/domains/connect", domains, &connected); err != nil {
		return "", err
	}
	var checked struct {
		Domains []struct {
			Verified bool
			Message  string
		}
	}
	if err := api("POST", "/v1/domains/check-ns", domains, &checked); err != nil {
		return "", err
	}
	if !checked.Domains[0].Verified {
		return "", fmt.Errorf("%s: %s", domain, checked.Domains[0].Message)
	}
	var found struct {
		JobID string `json:"job_id"`
	}
	if err := api("GET", "/v1/domains/"+connected.Domains[0].ID, nil, &found); err != nil {
		return "", err
	}
	return wait(found.JobID)
}

// wait waits until a job has ended, and returns its status. Each request waits for up to 30
// seconds.
func wait(jobID string) (status string, err error) {
	for {
		var job struct {
			Status      string
			CompletedAt *time.Time `json:"completed_at"`
		}
		if err := api("GET", "/v1/jobs/"+jobID+"?wait=30", nil, &job); err != nil {
			return "", err
		}
		if job.CompletedAt != nil {
			return job.Status, nil
		}
	}
}

// newest waits until an inbox has a message, and returns the path of the newest.
func newest(inbox string) (path string, err error) {
	for {
		var page struct {
			Data []struct{ UID string }
		}
		if err := api("GET", inbox, nil, &page); err != nil {
			return "", err
		}
		if len(page.Data) > 0 {
			return inbox + "/" + page.Data[0].UID, nil
		}
		time.Sleep(time.Second)
	}
}

func run(domain string) error {
	status, err := setUp(domain)
	if err != nil {
		return err
	}
	fmt.Printf("domain %s: %s\n", domain, status)

	// With an Idempotency-Key the request can be repeated without creating a second mailbox. Only
	// this response has the password.
	address := "ann@" + domain
	var mailbox struct {
		UserID          string `json:"user_id"`
		Email, Password string
	}
	wanted := map[string]any{"email": address, "name": "Ann"}
	if err := api("POST", "/v1/email-users", wanted, &mailbox, "Idempotency-Key", "create-"+address); err != nil {
		return err
	}
	fmt.Println("mailbox", mailbox.Email)

	// Send a message to the same mailbox, read it, mark it as read, and delete it.
	inbox := "/v1/email-users/" + mailbox.UserID + "/inbox"
	mail := map[string]any{"to": address, "subject": "Hello", "text": "It works."}
	if err := api("POST", inbox+"/send", mail, nil); err != nil {
		return err
	}
	path, err := newest(inbox)
	if err != nil {
		return err
	}
	var message struct{ Subject, Text string }
	if err := api("GET", path, nil, &message); err != nil {
		return err
	}
	fmt.Printf("message %s: %s\n", message.Subject, strings.TrimSpace(message.Text))
	if err := api("PATCH", path, map[string]any{"is_read": true}, nil); err != nil {
		return err
	}
	return api("DELETE", path, nil, nil)
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: mailbox DOMAIN")
	}
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}
