// What may be set up together with a domain: tags, mailboxes, a redirect, a forward.
import { useQuery } from '../../api/query'
import { Card, Select, TextArea, TextField } from '../../ui'
import type { Schemas } from '../../api/client'

export interface ExtrasForm { tags: string[]; tagText: string; template: string; users: string; redirect: string; forward: string }

export const emptyExtras: ExtrasForm = { tags: [], tagText: '', template: '', users: '', redirect: '', forward: '' }

/** Tells whether more than tags is to be set up. */
export function hasExtras(e: ExtrasForm): boolean {
  return [e.template, e.users, e.redirect, e.forward].some((text) => text.trim() !== '')
}

/** The mailboxes that are to be made: a name before the @ in each line, with the person's name behind it if there is one. */
export function usersOf(e: ExtrasForm): Schemas['SetupUser'][] | undefined {
  const users = e.users.split(/[\n,;]+/).map((line) => line.trim()).filter(Boolean).map((line) => {
    const [username, ...name] = line.split(/\s+/)
    return { username: username!.replace(/@.*$/, '').toLowerCase(), name: name.join(' ') || undefined }
  })
  return users.length > 0 ? users : undefined
}

export function Extras({ value: e, onChange, hosted }: { value: ExtrasForm; onChange: (e: ExtrasForm) => void; hosted: boolean }) {
  const templates = useQuery('list_templates', { limit: 100 })
  const set = (change: Partial<ExtrasForm>) => onChange({ ...e, ...change })
  const list = templates.data?.data ?? []
  return (
    <Card title="Also set up" note="Optional. You can do all of this later.">
      <div class="stack">
        <TextField label="Tags" name="tags" value={e.tagText} onInput={(tagText) => set({ tagText, tags: [...new Set(tagText.split(',').map((t) => t.trim()).filter(Boolean))] })} placeholder="client-a, newsletter" hint="Separate tags with commas. You can filter domains by tag." />
        {hosted && (
          <details open={hasExtras(e)}>
            <summary>Mailboxes, redirect and forwarding</summary>
            <div class="stack">
              <div class="grid-2">
                <TextArea label="Mailboxes" name="users" value={e.users} onInput={(users) => set({ users })} rows={4} mono placeholder={'hello\nanna Anna Rossi'} hint="One per line: username, then display name. Passwords are generated. To see them, create an export." />
                {list.length > 0 && <Select label="Template" name="template_id" value={e.template} onChange={(template) => set({ template })} options={[['', 'None'], ...list.map((t) => [t.id, `${t.name} (${t.usernames.length})`] as const)]} />}
              </div>
              <div class="grid-2">
                <TextField label="Redirect website to" name="redirect_url" type="url" value={e.redirect} onInput={(redirect) => set({ redirect })} placeholder="https://www.example.com/" />
                <TextField label="Forward all other mail to" name="forward_address" type="email" value={e.forward} onInput={(forward) => set({ forward })} placeholder="me@example.com" />
              </div>
            </div>
          </details>
        )}
      </div>
    </Card>
  )
}
