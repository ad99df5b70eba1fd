// This program uses a client that oapi-codegen made of the API's description: it connects a domain,
// waits until it is set up, makes a mailbox, and is refused one without a name.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/mailstead/mailstead/client"
)

func main() {
	authorize := func(_ context.Context, req *http.Request) error {
		req.Header.Set("Authorization", "Bearer "+os.Getenv("MAILSTEAD_TOKEN"))
		return nil
	}
	c, err := client.NewClientWithResponses(os.Getenv("MAILSTEAD_URL"), client.WithRequestEditorFn(authorize))
	if err != nil {
		log.Fatal(err)
	}
	if err := run(context.Background(), c); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, c *client.ClientWithResponses) error {
	if err := setUp(ctx, c, "generated.test"); err != nil {
		return err
	}
	name, domain := "ann", "generated.test"
	made, err := c.CreateEmailUserWithResponse(ctx, nil, client.CreateEmailUserRequest{Username: &name, Domain: &domain})
	if err != nil {
		return err
	}
	if made.JSON201 == nil {
		return fmt.Errorf("create_email_user: %s %s", made.Status(), made.Body)
	}
	refused, err := c.CreateEmailUserWithResponse(ctx, nil, client.CreateEmailUserRequest{Domain: &domain})
	if err != nil {
		return err
	}
	if refused.JSON400 == nil {
		return fmt.Errorf("create_email_user without a name: %s %s", refused.Status(), refused.Body)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"made": made.JSON201, "refused": refused.JSON400.Error.Code})
}

func setUp(ctx context.Context, c *client.ClientWithResponses, name string) error {
	connected, err := c.ConnectDomainsWithResponse(ctx, nil, client.ConnectDomainsRequest{Domains: []string{name}})
	if err != nil {
		return err
	}
	if connected.JSON200 == nil || connected.JSON200.Domains[0].DomainId == nil {
		return fmt.Errorf("connect_domains: %s %s", connected.Status(), connected.Body)
	}
	checked, err := c.CheckNameserversWithResponse(ctx, nil, client.CheckNameserversRequest{Domains: []string{name}})
	if err != nil {
		return err
	}
	if checked.JSON200 == nil || !checked.JSON200.AllVerified {
		return fmt.Errorf("check_nameservers: %s %s", checked.Status(), checked.Body)
	}
	domain, err := c.GetDomainWithResponse(ctx, *connected.JSON200.Domains[0].DomainId)
	if err != nil {
		return err
	}
	if domain.JSON200 == nil || domain.JSON200.JobId == nil {
		return fmt.Errorf("get_domain: %s %s", domain.Status(), domain.Body)
	}
	wait := int64(30)
	job, err := c.GetJobWithResponse(ctx, *domain.JSON200.JobId, &client.GetJobParams{Wait: &wait})
	if err != nil {
		return err
	}
	if job.JSON200 == nil || job.JSON200.Status != client.JobResponseStatusCompleted {
		return fmt.Errorf("get_job: %s %s", job.Status(), job.Body)
	}
	return nil
}
