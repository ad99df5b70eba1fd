// Webhooks creates a webhook endpoint, tests it, rotates its secret, lists events and deletes the
// endpoint. Usage: webhooks URL, with MAILSTEAD_URL and MAILSTEAD_TOKEN set.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"time"
)

// api calls the API and decodes the response into out, which may be nil. If the API refuses the
// request, the error has its message.
func api(method, path string, body, out any) error {
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

// every calls do with each row of a list. It requests the list page by page.
func every[T any](path string, query url.Values, do func(T)) error {
	for {
		var page struct {
			Data       []T
			Pagination struct{ Cursor *string }
		}
		if err := api("GET", path+"?"+query.Encode(), nil, &page); err != nil {
			return err
		}
		for _, row := range page.Data {
			do(row)
		}
		if page.Pagination.Cursor == nil {
			return nil
		}
		query.Set("cursor", *page.Pagination.Cursor)
	}
}

// test sends a test event to an endpoint and returns the outcome of the first attempt.
func test(endpoint string) (outcome string, err error) {
	var tested struct {
		EventID string `json:"event_id"`
	}
	if err := api("POST", endpoint+"/test", nil, &tested); err != nil {
		return "", err
	}
	for {
		var attempts struct {
			Data []struct{ Outcome string }
		}
		if err := api("GET", endpoint+"/deliveries?event_id="+tested.EventID, nil, &attempts); err != nil {
			return "", err
		}
		if len(attempts.Data) > 0 {
			return attempts.Data[0].Outcome, nil
		}
		time.Sleep(time.Second)
	}
}

func run(target string) error {
	// The receiver needs the secret in this response.
	var webhook struct{ ID, Secret string }
	wanted := map[string]any{"url": target, "events": []string{"email.received", "email.bounced"}}
	if err := api("POST", "/v1/webhooks", wanted, &webhook); err != nil {
		return err
	}
	fmt.Printf("secret %.6s…\n", webhook.Secret)
	endpoint := "/v1/webhooks/" + webhook.ID
	outcome, err := test(endpoint)
	if err != nil {
		return err
	}
	fmt.Println("test", outcome)

	// For 24 hours deliveries have a signature for each of the two secrets, so there is time to
	// change the secret of the receiver.
	var rotated struct {
		Secret string
		Ends   time.Time `json:"previous_secret_expires_at"`
	}
	if err := api("POST", endpoint+"/rotate-secret", nil, &rotated); err != nil {
		return err
	}
	fmt.Println("rotated, old secret until", rotated.Ends)

	// Events are kept for 30 days, even if no endpoint accepted them.
	type event struct{ Type string }
	if err := every("/v1/events", url.Values{"limit": {"2"}}, func(e event) { fmt.Println("event", e.Type) }); err != nil {
		return err
	}
	var deleted struct{ Deleted bool }
	if err := api("DELETE", endpoint, nil, &deleted); err != nil {
		return err
	}
	fmt.Println("deleted", deleted.Deleted)
	return nil
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: webhooks URL")
	}
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}
