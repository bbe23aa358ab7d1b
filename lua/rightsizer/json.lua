--- One JSON codec on top of whichever library the site has: lua-cjson, else dkjson.
-- Neither is loaded before the first job needs it, so the hook loads on a machine without either.
local json = {}

local function from_cjson(cjson)
   -- A private instance: its settings affect no other user of the library in the same Lua state.
   local codec = cjson.new()
   codec.decode_invalid_numbers(false)
   return { encode = codec.encode, decode = codec.decode }
end

--- Stands for null: dkjson's own null is a table, which would pass for an empty object.
local function null() end

local function decode_with(dkjson, line)
   local value, position, message = dkjson.decode(line, 1, null)
   if message then
      error(message, 0)
   elseif line:find("%S", position) then
      error("something follows the value", 0)
   end
   return value
end

local function from_dkjson(dkjson)
   return {
      encode = dkjson.encode,
      decode = function(line)
         return decode_with(dkjson, line)
      end,
   }
end

local chosen

local LIBRARIES = { { "cjson", from_cjson }, { "dkjson", from_dkjson } }

--- Returns a table of `encode` and `decode`, which raise an error on bad input; nil and a reason without a
-- library.
function json.codec()
   if chosen then
      return chosen
   end
   for _, library in ipairs(LIBRARIES) do
      local found, module = pcall(require, library[1])
      if found then
         local built, codec = pcall(library[2], module)
         if built then
            chosen = codec
            return chosen
         end
      end
   end
   return nil, "no_json_library"
end

return json
