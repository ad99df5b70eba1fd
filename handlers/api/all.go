package api

import (
	"slices"

	"github.com/mailstead/mailstead/service"
)

// All returns all operations of the API, in the order of the reference.
func All(s *service.Service) []Operation {
	return slices.Concat(
		account(s), me(s), team(s), allDomains(s), dns(s), webhooks(s), jobs(s), emailUsers(s), credentials(s), mailRules(s), groups(s),
		templates(s), messageTemplates(s), exports(s), health(s), mail(s), folders(s), sending(s), approvals(s), suppressions(s),
	)
}
