--- Makes text safe to put on the wire, and says whether text from the wire is safe to show.
-- Users may put any bytes into a job's name, comment or script; a frame has to be valid UTF-8.
local text = {}

local function is_continuation(byte)
   return byte ~= nil and byte >= 0x80 and byte <= 0xBF
end

--- The smallest and largest second byte that a lead byte allows: no overlong forms, no surrogates.
local SECOND_BYTE = {
   [0xE0] = { 0xA0, 0xBF },
   [0xED] = { 0x80, 0x9F },
   [0xF0] = { 0x90, 0xBF },
   [0xF4] = { 0x80, 0x8F },
}

--- How many bytes the valid multi-byte sequence at `position` has; nil when there is none.
local function sequence_length(bytes, position)
   local lead, second, third, fourth = bytes:byte(position, position + 3)
   local range = SECOND_BYTE[lead] or { 0x80, 0xBF }
   if lead < 0xC2 or lead > 0xF4 or not second or second < range[1] or second > range[2] then
      return nil
   elseif lead < 0xE0 then
      return 2
   elseif lead < 0xF0 then
      return is_continuation(third) and 3 or nil
   end
   return is_continuation(third) and is_continuation(fourth) and 4 or nil
end

local function repair(run)
   local parts = {}
   local position = 1
   while position <= #run do
      local length = sequence_length(run, position)
      parts[#parts + 1] = length and run:sub(position, position + length - 1) or "?"
      position = position + (length or 1)
   end
   return table.concat(parts)
end

--- The first `limit` bytes, without the front half of a character that the limit cuts through.
local function cut(value, limit)
   local last = limit
   while last > limit - 3 and last > 0 and is_continuation(value:byte(last + 1)) do
      last = last - 1
   end
   return value:sub(1, last)
end

--- `value` as valid UTF-8 of at most `limit` bytes: each byte that is not valid becomes "?".
function text.clean(value, limit)
   if #value > limit then
      value = cut(value, limit)
   end
   if not value:find("[\128-\255]") then
      return value
   end
   return (value:gsub("[\128-\255]+", repair))
end

--- Whether `value` holds printable ASCII alone.
function text.is_printable_ascii(value)
   return not value:find("[^\32-\126]")
end

--- Whether `value` may be shown on a terminal: valid UTF-8 without control characters, C1 included.
function text.is_displayable(value)
   if value:find("[^\32-\126\128-\255]") or value:find("\194[\128-\159]") then
      return false
   end
   return text.clean(value, #value) == value
end

return text
