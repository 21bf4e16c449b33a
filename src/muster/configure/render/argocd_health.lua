-- Health of an Application, so that sync waves of an app of apps wait for each other.
-- Argo CD gives health rules no string library, and of `os` the functions `time` and `date` by way of `require` alone.
-- It runs them for every Application of the installation.
local os = require("os")
local metadata = obj.metadata or {}
local status = obj.status or {}
local health = status.health or {}

-- Applications of other people: their own health, nothing more.
if (metadata.labels or {})["muster.dev/component"] == nil then
  return { status = health.status or "Progressing", message = health.message or "" }
end

-- Argo CD leaves empty fields out when it copies a source into the status.
local function empty(value)
  if type(value) ~= "table" then
    return value == nil or value == "" or value == false
  end
  for _, inner in pairs(value) do
    if not empty(inner) then
      return false
    end
  end
  return true
end

local function equal(one, other)
  if type(one) ~= "table" or type(other) ~= "table" then
    return one == other or (empty(one) and empty(other))
  end
  for key, inner in pairs(one) do
    if not equal(inner, other[key]) then
      return false
    end
  end
  for key, inner in pairs(other) do
    if one[key] == nil and not empty(inner) then
      return false
    end
  end
  return true
end

local function of_present_source(found)
  return found ~= nil and equal(obj.spec.source, found.source) and equal(obj.spec.sources, found.sources)
end

local operation = status.operationState or {}
local result = operation.syncResult
local sync = status.sync or {}
local compared = sync.comparedTo

-- The moment before which an operation must have begun to be too late. Times of the API are text of one fixed
-- layout, so that they compare as text. The time zone of the controller does not matter this way.
local function overdue()
  local limit_s = tonumber((metadata.annotations or {})["muster.dev/timeout-s"])
  if limit_s == nil or operation.startedAt == nil then
    return nil
  end
  local now = os.date("!*t")
  now.sec = now.sec - limit_s
  if operation.startedAt < os.date("%Y-%m-%dT%H:%M:%SZ", os.time(now)) then
    return "not ready within " .. tostring(limit_s) .. " s: "
  end
  return nil
end

local function wait(message)
  local late = overdue()
  if late ~= nil then
    return { status = "Degraded", message = late .. message }
  end
  return { status = "Progressing", message = message }
end

-- An operation that failed and is out of retries is not tried again by itself.
local failed = operation.phase == "Failed" or operation.phase == "Error"
if failed and (result == nil or of_present_source(result)) then
  return { status = "Degraded", message = operation.message or "the sync failed" }
end
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "ComparisonError" or condition.type == "InvalidSpecError" then
    return { status = "Degraded", message = condition.message or condition.type }
  end
end
if operation.phase == "Running" or operation.phase == "Terminating" then
  return wait("syncing: " .. (operation.message or ""))
end
-- Health alone is not enough: after an upgrade the old objects are healthy still.
if not of_present_source(compared) or not equal(obj.spec.destination, compared.destination) then
  return wait("not yet compared with the present version")
end
-- A source that changes nothing is never synced again, so a comparison without a difference is enough. A source that
-- stays different although it was synced (a webhook changes its objects) counts once it was compared after the sync.
local settled = operation.phase == "Succeeded"
  and of_present_source(result)
  and operation.finishedAt ~= nil
  and status.reconciledAt ~= nil
  and operation.finishedAt < status.reconciledAt
if sync.status ~= "Synced" and not settled then
  return wait("waiting for the sync of the present version")
end
if health.status == "Healthy" then
  return { status = "Healthy", message = health.message or "" }
end
-- A claim for a volume may be bound only by a pod of a later release.
local applied = health.status == "Progressing" or health.status == "Unknown"
if applied and (metadata.annotations or {})["muster.dev/awaits"] == "nothing" then
  return { status = "Healthy", message = "applied; its objects wait for a later release" }
end
if health.status == "Degraded" and operation.startedAt == nil then
  return { status = "Degraded", message = health.message or "" }
end
return wait("the objects are " .. (health.status or "of unknown health"))
